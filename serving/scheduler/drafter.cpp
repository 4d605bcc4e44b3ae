#include "serving/scheduler/drafter.h"

namespace trireme {

std::vector<std::vector<int32_t>> TextDrafter::guess(std::span<const DraftWish> wishes) {
  std::vector<std::vector<int32_t>> out;
  for (const DraftWish& wish : wishes)
    out.push_back(guess_from_text(wish.sequence->tokens, config_, wish.count));
  return out;
}

}  // namespace trireme
