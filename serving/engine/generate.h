// Decode loop: computes a prompt into a KV cache, then samples one token at a time.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/ops/attention/kv_codes.h"
#include "engine/ops/sampling/sample.h"
#include "transformer/model/model.h"

namespace trireme {

struct GenerateOptions {
  RowSamplingParams sampling;
  int64_t max_new_tokens = 256;
  std::vector<int32_t> stop_tokens;  // each ends the text and is not part of it
  // Ids from here on are never sampled: a model's vocabulary may be padded beyond its tokenizer's,
  // and the padding rows are hardly trained. 0: the model's vocabulary.
  int64_t vocab_size = 0;
  // Ranks that share the model: by tensor parallelism, expert parallelism and pipeline parallelism
  // with one chunk per rank. All call generate() with the same arguments and get the same tokens,
  // sampled by one of them; if on_token returns false on one rank, it must on all. nullptr: this
  // rank has the whole model. No data or context parallelism.
  const Groups* groups = nullptr;
  std::optional<KvType> kv_type = {};  // of the cache; absent: the model's dtype
};

enum class StopReason { kLength, kStopToken, kContextFull };

struct Generation {
  std::vector<int32_t> tokens;   // generated tokens, without the prompt
  std::vector<double> logprobs;  // of each, over the ids that may be sampled
  StopReason reason = StopReason::kLength;
};

// Positions of a prompt and its completion, which the model must have reserved.
int64_t positions_of(const ModelConfig& config, std::span<const int32_t> prompt,
                     const GenerateOptions& options);

// Generates one completion. The prompt has at least one token and leaves room in the model's
// positions. on_token is called for each token; returning false ends the generation.
Generation generate(const Model& model, ParameterStore& params, Ctx& ctx,
                    std::span<const int32_t> prompt, const GenerateOptions& options,
                    const std::function<bool(int32_t)>& on_token = {});

}  // namespace trireme
