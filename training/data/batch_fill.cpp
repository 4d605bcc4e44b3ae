#include "training/data/batch_fill.h"

#include <algorithm>

#include "engine/core/error.h"
#include "engine/core/tensor.h"
#include "engine/ops/loss/cross_entropy.h"

namespace trireme {

BatchFill::BatchFill(const BatchFillOptions& options, MicroBatch& batch, int64_t count)
    : options_(options), batch_(batch) {
  const int64_t S = options.sequence_length;
  TRIREME_CHECK(count > 0 && S > 0, "a micro-batch of ", count, " sequences of ", S,
                " tokens, expected at least 1 of each");
  const auto tokens = static_cast<size_t>(checked_mul(count, S));
  narrow<int32_t>(tokens);  // cu_seqlens are int32
  batch.tokens.resize(tokens);
  batch.targets.resize(tokens);
  batch.positions.resize(tokens);
  batch.global_index.resize(tokens);
  // Enough for documents of one token each, so that later batches never grow it.
  batch.cu_seqlens.reserve(tokens + 1);
  batch.cu_seqlens.assign(1, 0);
  batch.valid_targets = 0;
}

void BatchFill::check_tokens(const int32_t* tokens, int64_t num_tokens,
                             const std::string& source) const {
  for (int64_t i = 0; i < num_tokens; ++i) {
    if (tokens[i] < options_.vocab_size) continue;
    fail_input("token ", tokens[i], " in token file ", source,
               " is outside the model's vocabulary of ", options_.vocab_size,
               ": raise model.vocab_size or prepare the data with the model's tokenizer");
  }
}

void BatchFill::add(const int32_t* tokens, int64_t num_tokens, int64_t sample,
                    const std::string& source) {
  const int64_t S = options_.sequence_length;
  check_tokens(tokens, num_tokens, source);
  int32_t position = 0;
  for (int64_t i = 0; i < S; ++i) {
    const auto to = static_cast<size_t>(filled_ + i);
    const bool real = i < num_tokens;
    const bool eod = real && tokens[i] == options_.eod;
    const bool has_target = i + 1 < num_tokens && !(eod && options_.eod_mask_loss);
    batch_.tokens[to] = real ? tokens[i] : 0;
    batch_.targets[to] = has_target ? tokens[i + 1] : kIgnoredTarget;
    batch_.positions[to] = position;
    batch_.global_index[to] = sample * S + i;
    batch_.valid_targets += has_target ? 1 : 0;
    position = eod && options_.reset_position_ids ? 0 : position + 1;
    if (eod && options_.reset_attention_mask && i + 1 < S) {
      batch_.cu_seqlens.push_back(static_cast<int32_t>(to + 1));
    }
  }
  filled_ += S;
  batch_.cu_seqlens.push_back(static_cast<int32_t>(filled_));
}

void BatchFill::finish() {
  TRIREME_CHECK(filled_ == static_cast<int64_t>(batch_.tokens.size()), filled_,
                " tokens were filled, expected ", batch_.tokens.size());
  batch_.max_seqlen = 0;
  for (size_t i = 1; i < batch_.cu_seqlens.size(); ++i) {
    batch_.max_seqlen =
        std::max(batch_.max_seqlen, batch_.cu_seqlens[i] - batch_.cu_seqlens[i - 1]);
  }
}

}  // namespace trireme
