#include "serving/scheduler/drafter.h"

namespace trireme {

std::vector<std::vector<int32_t>> TextDrafter::propose(std::span<const DraftRequest> requests) {
  std::vector<std::vector<int32_t>> out;
  for (const DraftRequest& request : requests)
    out.push_back(draft_from_text(request.sequence->tokens, config_, request.count));
  return out;
}

}  // namespace trireme
