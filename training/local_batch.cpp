#include "training/local_batch.h"

#include "engine/core/tensor.h"
#include "engine/ops/cross_entropy.h"

namespace trireme {

int64_t local_tokens(int64_t sequences, int64_t sequence_length, const Layout& layout) {
  return round_up(checked_mul(sequences, sequence_length), layout.token_split().size);
}

bool is_local_batch_whole(int64_t sequences, int64_t sequence_length, const Layout& layout) {
  return local_tokens(sequences, sequence_length, layout) == sequences * sequence_length;
}

void fill_local_batch(const MicroBatch& whole, int64_t sequence_length, const Layout& layout,
                      MicroBatch& local) {
  local = whole;
  const int64_t sequences = std::ssize(whole.tokens) / sequence_length;
  const auto padded = static_cast<size_t>(local_tokens(sequences, sequence_length, layout));
  if (padded == whole.tokens.size()) return;
  local.tokens.resize(padded, 0);
  local.targets.resize(padded, kIgnoredTarget);
  local.positions.resize(padded, 0);
  local.rows.resize(padded, -1);
  local.cu_seqlens.push_back(narrow<int32_t>(static_cast<int64_t>(padded)));
}

}  // namespace trireme
