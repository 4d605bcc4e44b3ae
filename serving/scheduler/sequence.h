// A sequence as the scheduler sees it: its tokens, what ends it, and how far the cache has got.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "serving/scheduler/block_pool.h"
#include "serving/scheduler/speculation.h"
#include "serving/scheduler/text_rule.h"
#include "serving/scheduler/token_choice.h"

namespace trireme {

enum class FinishReason {
  kStop,    // a token of TokenChoice::end_ids, or the text is embedded
  kWhole,   // nothing may follow by the text's rule: the last token belongs to the text
  kLength,  // max_tokens, or the model's length, or no token goes on with a text that is not whole
  kError,  // its logits were not finite, no token was left to choose from, or no memory for its rule
};

class Sequence;

struct SequenceRequest {
  std::vector<int32_t> prompt;  // at least one token
  std::shared_ptr<const TokenChoice> choice;
  int64_t max_tokens = 0;   // to generate, at least one
  int priority = 0;         // lower first
  std::string salt = {};    // prefixes are shared among equal salts only
  std::string tenant = {};  // whose it is: steps are shared fairly (sampling_turns.h)
  uint64_t draw = 0;        // draw_of(): sequences that share a choice draw differently
  // Another of the same prompt, which is to be computed first: this one finds it in the cache then.
  std::shared_ptr<Sequence> sibling = {};
  int32_t adapter = -1;  // of those served beside one another; -1: the model alone
  std::shared_ptr<const TextRule> rule = {};  // of the text; absent: any
  std::shared_ptr<MaskPace> pace = {};        // of its masks; the engine's
  bool embeds = false;  // nothing is generated: what the model makes of the prompt is told
};

class Sequence {
 public:
  explicit Sequence(SequenceRequest request)
      : tokens(std::move(request.prompt)),
        prompt_tokens(std::ssize(tokens)),
        choice(std::move(request.choice)),
        max_tokens(request.max_tokens),
        priority(request.priority),
        salt(std::move(request.salt)),
        tenant(std::move(request.tenant)),
        draw(request.draw),
        sibling(std::move(request.sibling)),
        adapter(request.adapter),
        reader(request.rule ? request.rule->begin(choice->end_ids, max_tokens, request.pace)
                            : nullptr),
        embeds(request.embeds) {}

  int64_t length() const { return std::ssize(tokens); }
  int64_t generated() const { return length() - prompt_tokens; }
  // Nothing is computed behind the prompt.
  bool is_whole_prompt() const { return embeds || max_tokens == 1; }

  std::vector<int32_t> tokens;  // the prompt's, then those generated
  int64_t prompt_tokens;
  std::shared_ptr<const TokenChoice> choice;
  int64_t max_tokens;
  int priority;
  std::string salt, tenant;
  uint64_t draw;
  std::shared_ptr<Sequence> sibling;
  int32_t adapter;
  std::unique_ptr<RuleReader> reader;  // has read the tokens generated; absent: any text
  bool embeds;

  // The scheduler's.
  enum class State { kNew, kWaiting, kRunning, kEnded };
  State state = State::kNew;
  uint64_t arrival = 0;
  int32_t slot = -1;                                 // while it runs
  uint64_t starts = 0;                               // how often it has entered one
  std::chrono::steady_clock::time_point begun = {};  // when it first did
  int64_t computed = 0;  // tokens whose keys the cache holds, or will after the steps under way
  int64_t cached_prompt = 0;    // of the prompt found in the cache when it first ran
  std::vector<int32_t> blocks;  // of the tokens up to computed, and some more
  int64_t told_blocks = 0;      // of them the ranks know
  int64_t published = 0;        // of them published
  PrefixId prefix = 0;          // of the published
  GuessAllowance guesses;
  bool unsettled = false;      // the tokens of its last step wait for its mask (Scheduler::settle)
  uint64_t turn = 0;           // step of the last one (sampling_turns.h); 0: none yet
  double choice_seconds = -1;  // of its last token; -1: not known
  double score_seconds = -1;   // of a log-probability of its prompt; -1: not known
  int64_t asked = 0;           // tokens whose followers' log-probabilities are told, or will be
};

}  // namespace trireme
