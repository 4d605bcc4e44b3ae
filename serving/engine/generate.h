// The decode loop: a prompt through the model into a KV cache, then one token at a time.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/ops/kv_codes.h"
#include "engine/ops/sample.h"
#include "transformer/model/model.h"

namespace trireme {

struct GenerateOptions {
  SamplingParams sampling;
  int64_t max_new_tokens = 256;
  std::vector<int32_t> stop_tokens;  // each ends the text and is not part of it
  // Ids from here on are never chosen: a model's vocabulary may be padded beyond its tokenizer's,
  // and the rows of the padding were hardly trained. 0: the model's vocabulary.
  int64_t vocab_size = 0;
  // Ranks that hold the model together: its matrices divided by tensor parallelism, its experts,
  // its layers by pipeline parallelism, one chunk a rank. All call generate() with the same
  // arguments and get the same tokens, chosen by one of them; on_token ends the text on all of them
  // or on none. nullptr: this rank holds the whole model. Samples and sequences are not divided.
  const Groups* groups = nullptr;
  std::optional<KvType> kv_type = {};  // of the cache; absent: the model's dtype
};

enum class StopReason { kLength, kStopToken, kContextFull };

struct Generation {
  std::vector<int32_t> tokens;   // new ones only
  std::vector<double> logprobs;  // of each, among the ids that may be chosen
  StopReason reason = StopReason::kLength;
};

// Positions that a prompt and its continuation take: those to reserve in the model before.
int64_t positions_of(const ModelConfig& config, std::span<const int32_t> prompt,
                     const GenerateOptions& options);

// One sequence. The prompt holds at least one token and leaves room in the model's positions.
// on_token is called as tokens come; returning false ends the generation.
Generation generate(const Model& model, ParameterStore& params, Ctx& ctx,
                    std::span<const int32_t> prompt, const GenerateOptions& options,
                    const std::function<bool(int32_t)>& on_token = {});

}  // namespace trireme
