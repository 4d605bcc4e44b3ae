// Decode loop of a single sequence: computes the prompt into a KV cache, then samples one token at
// a time.
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
  std::vector<int32_t> stop_tokens;  // ids that end the completion; not part of it
  // Sampled ids are below this. A model's vocabulary may be padded beyond its tokenizer's, and the
  // padding rows are hardly trained. 0: the model's vocabulary size.
  int64_t vocab_size = 0;
  // Ranks that share the model: by tensor parallelism, expert parallelism and pipeline parallelism
  // with one chunk per rank, not by data or context parallelism. All call generate() with the same
  // arguments. One of them samples, and all get the same tokens. on_token must return the same on
  // all ranks. nullptr: this rank has the whole model.
  const Groups* groups = nullptr;
  std::optional<KvType> kv_type = {};  // of the cache; absent: the model's dtype
};

// kLength: max_new_tokens are generated. kContextFull: the model's positions are full before that.
enum class StopReason { kLength, kStopToken, kContextFull };

struct Generation {
  std::vector<int32_t> tokens;  // generated tokens, without the prompt
  // ln probability of each token among the ids below vocab_size, at temperature 1, unfiltered.
  std::vector<double> logprobs;
  StopReason reason = StopReason::kLength;
};

// Number of positions of a prompt and its completion, which the model must have reserved: those of
// the prompt and max_new_tokens, at most longest_sequence(config).
int64_t positions_of(const ModelConfig& config, std::span<const int32_t> prompt,
                     const GenerateOptions& options);

// Generates one completion. on_token gets each token, and ends the generation by returning false;
// `reason` is then kLength or kContextFull, whichever limit would have ended it. InputError if the
// prompt is empty or leaves no room in the model's positions, a sampling parameter is out of range,
// or logits are not finite.
Generation generate(const Model& model, ParameterStore& params, Ctx& ctx,
                    std::span<const int32_t> prompt, const GenerateOptions& options,
                    const std::function<bool(int32_t)>& on_token = {});

}  // namespace trireme
