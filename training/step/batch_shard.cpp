#include "training/step/batch_shard.h"

#include <algorithm>

#include "engine/core/tensor.h"
#include "engine/ops/loss/cross_entropy.h"

namespace trireme {

namespace {

ContextLayout context_layout(int64_t sequences, int64_t sequence_length, const Layout& layout) {
  return make_context_layout(sequences, sequence_length, layout.cp.size, layout.token_split().size,
                             layout.cp_balance);
}

void fill_context_part(const MicroBatch& whole, int64_t sequence_length, const Layout& layout,
                       const ModelConfig& model, MicroBatch& local) {
  const ContextLayout chunks =
      context_layout(std::ssize(whole.tokens) / sequence_length, sequence_length, layout);
  if (local.context == nullptr || !(local.context->layout() == chunks))
    local.context = std::make_shared<ContextPlan>(
        chunks, layout.cp.index, layout.cp_ulysses,
        ContextSpans{.windows = model.has_windows(), .chunk = model.attention_chunk});
  local.context->build(whole.cu_seqlens, whole.global_index);
  const std::vector<int64_t>& tokens = local.context->tokens();
  const auto take = [&](const auto& from, auto padding, auto& to) {
    to.resize(tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i)
      to[i] = tokens[i] < 0 ? padding : from[static_cast<size_t>(tokens[i])];
  };
  take(whole.tokens, int32_t{0}, local.tokens);
  take(whole.targets, int32_t{kIgnoredTarget}, local.targets);
  take(whole.positions, int32_t{0}, local.positions);
  take(whole.global_index, int64_t{-1}, local.global_index);
  local.cu_seqlens.clear();
  local.max_seqlen = whole.max_seqlen;
  local.valid_targets =
      std::ssize(local.targets) - std::ranges::count(local.targets, kIgnoredTarget);
}

}  // namespace

int64_t local_tokens(int64_t sequences, int64_t sequence_length, const Layout& layout) {
  if (layout.cp.size > 1) return context_layout(sequences, sequence_length, layout).local_tokens();
  return round_up(checked_mul(sequences, sequence_length), layout.token_split().size);
}

bool is_batch_shard_whole(int64_t sequences, int64_t sequence_length, const Layout& layout) {
  return layout.cp.size == 1 &&
         local_tokens(sequences, sequence_length, layout) == sequences * sequence_length;
}

void fill_batch_shard(const MicroBatch& whole, int64_t sequence_length, const Layout& layout,
                      const ModelConfig& model, MicroBatch& local) {
  if (layout.cp.size > 1) return fill_context_part(whole, sequence_length, layout, model, local);
  local = whole;
  const int64_t sequences = std::ssize(whole.tokens) / sequence_length;
  const auto padded = static_cast<size_t>(local_tokens(sequences, sequence_length, layout));
  if (padded == whole.tokens.size()) return;
  local.tokens.resize(padded, 0);
  local.targets.resize(padded, kIgnoredTarget);
  local.positions.resize(padded, 0);
  local.global_index.resize(padded, -1);
  local.cu_seqlens.push_back(narrow<int32_t>(static_cast<int64_t>(padded)));
}

}  // namespace trireme
