// Sequence of the scheduler: its tokens, stop conditions and position in the KV cache.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "serving/scheduler/block_table.h"
#include "serving/scheduler/kv_block_pool.h"
#include "serving/scheduler/sampling_params.h"
#include "serving/scheduler/speculation.h"
#include "serving/scheduler/text_rule.h"

namespace trireme {

enum class FinishReason {
  kStop,    // a stop token id (SamplingParams::stop_token_ids), or the prompt has been embedded
  kWhole,   // the rule allows no further token; the last token is part of the completion
  kLength,  // max_tokens or max_model_len reached, or the rule ends an incomplete completion
  // Logits not finite, no token left to sample, no memory for the rule, or any failure or abort by
  // the engine (serving/engine/failure.h).
  kError,
};

class Sequence;

struct SequenceRequest {
  std::vector<int32_t> prompt;  // at least one token
  std::shared_ptr<const SamplingParams> sampling_params;
  int64_t max_tokens = 0;   // to generate, at least one; 0 with `embeds`
  int priority = 0;         // lower first
  std::string salt = {};    // prefixes are shared only among sequences with equal salts
  std::string tenant = {};  // for fair sharing of sampling time (sampling_turns.h)
  uint64_t draw = 0;        // draw_of(): sequences that share a SamplingParams sample differently
  // Sequence of the same prompt to compute first: this one then finds the prompt in the cache. Its
  // results follow the prompt log-probabilities of that one.
  std::shared_ptr<Sequence> sibling = {};
  int32_t adapter = -1;                       // index of the LoRA adapter; -1: base model
  std::shared_ptr<const TextRule> rule = {};  // constraint on the completion; nullptr: none
  std::shared_ptr<MaskPace> pace = {};        // work limit of the rule's masks; set by the engine
  bool embeds = false;                        // returns the prompt's embedding, generates nothing
};

class Sequence {
 public:
  explicit Sequence(SequenceRequest request)
      : tokens(std::move(request.prompt)),
        prompt_tokens(std::ssize(tokens)),
        sampling_params(std::move(request.sampling_params)),
        max_tokens(request.max_tokens),
        priority(request.priority),
        salt(std::move(request.salt)),
        tenant(std::move(request.tenant)),
        draw(request.draw),
        sibling(std::move(request.sibling)),
        adapter(request.adapter),
        reader(request.rule
                   ? request.rule->begin(sampling_params->stop_token_ids, max_tokens, request.pace)
                   : nullptr),
        embeds(request.embeds) {}

  int64_t length() const { return std::ssize(tokens); }
  int64_t generated() const { return length() - prompt_tokens; }
  // True if nothing is computed after the prompt.
  bool is_whole_prompt() const { return embeds || max_tokens == 1; }

  std::vector<int32_t> tokens;  // prompt, then generated tokens
  int64_t prompt_tokens;
  std::shared_ptr<const SamplingParams> sampling_params;
  int64_t max_tokens;
  int priority;
  std::string salt, tenant;
  uint64_t draw;
  std::shared_ptr<Sequence> sibling;
  int32_t adapter;
  std::unique_ptr<RuleReader> reader;  // has read the generated tokens; nullptr: no constraint
  bool embeds;

  // Fields of the scheduler.
  enum class State { kNew, kWaiting, kRunning, kEnded };
  State state = State::kNew;
  uint64_t arrival = 0;
  int32_t slot = -1;                                 // while running
  uint64_t starts = 0;                               // number of times it entered a slot
  std::chrono::steady_clock::time_point begun = {};  // first start
  int64_t in_flight = 0;                             // planned steps of it without a result yet
  int64_t computed = 0;       // tokens with keys in the cache, counting steps in flight
  int64_t cached_prompt = 0;  // prompt tokens found in the cache at the first start
  // Block tables by group of layers: for the first `computed` tokens, as far as later tokens attend
  // to them, and possibly more.
  struct Table : BlockTable {
    int64_t known = 0;  // number of the blocks, from `first` on, that the ranks know
  };
  std::vector<Table> tables;
  int64_t published = 0;  // number of blocks, from the sequence's first, that are published
  PrefixId prefix = 0;    // id of the prefix that these blocks hold
  DraftAllowance draft_allowance;
  bool unsettled = false;        // its last result is held until the mask is ready (settle())
  uint64_t turn = 0;             // step of its last turn (sampling_turns.h); 0: none yet
  double sampling_seconds = -1;  // per token sampled in its last step; -1: unknown
  double score_seconds = -1;     // per prompt log-probability; -1: unknown
  int64_t scored = 0;            // prompt log-probabilities reported or in flight
};

}  // namespace trireme
