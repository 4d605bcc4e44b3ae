// One step of the engine: what every rank computes, and what comes of it. A rank keeps, of each
// slot, the table of its sequence's blocks and, where tokens are chosen, the TokenChoice; a plan
// says what changes.
//
// Nothing in it is a request's own text or name: a rank can do nothing with a plan but run the
// model.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "serving/scheduler/token_choice.h"

namespace trireme {

// A sequence enters a slot, new or after preemption.
struct SlotStart {
  int32_t slot = 0;
  int64_t prompt_tokens = 0;     // of history
  std::vector<int32_t> history;  // prompt and text so far; empty unless the choice needs it
  int64_t generated = 0;         // tokens of the text so far
  uint64_t draw = 0;             // of the sequence (token_choice.h)
  int32_t adapter = -1;          // of those served beside one another; -1: the model alone
  std::shared_ptr<const TokenChoice> choice;
};

// Some tokens of one sequence behind those that the cache holds.
struct SequenceStep {
  int32_t slot = 0;
  int32_t first_token = 0, tokens = 0;  // of StepPlan::tokens
  int32_t past = 0;                     // tokens before them
  int32_t kept_blocks = 0;              // of the slot's table; behind them come
  int32_t first_block = 0, blocks = 0;  // of StepPlan::blocks
  bool samples = false;                 // the token after the last of these is chosen
  // So many of the tokens, the last ones, are guesses of what follows
  // (serving/scheduler/speculation.h): with `samples` the token behind the last other one is
  // chosen, and as long as it is the guess, that behind each of these.
  int32_t guesses = 0;
  bool embeds = false;  // the last of these is the end of a text to be embedded
  // Row of StepPlan::masks that says among which tokens, and behind it one for what follows each
  // guess; -1: among all.
  int32_t mask = -1;
  // The tokens of the prompt behind these of the step's tokens have their log-probabilities told:
  // `asked` tokens from number first_asked on (of the step's own).
  int32_t first_asked = 0, asked = 0;
  int32_t following =
      -1;  // the token behind the last of the step; -1: it is not known, or not asked for
};

struct StepPlan {
  uint64_t number = 0;  // counts from 1
  std::vector<SlotStart> starts;
  std::vector<SequenceStep> sequences;
  std::vector<int32_t> tokens, blocks;
  std::vector<uint32_t> masks;  // (rows, ceil(V / 32)): bit id % 32 of word id / 32 allows an id

  bool empty() const { return sequences.empty(); }
};

struct TokenLogprob {
  int32_t id = 0;
  double logprob = 0;
};

// In place of a token's id where there is none.
inline constexpr int32_t kNotFinite = -1;  // the logits were not
// What the choice forbids and what the mask does not allow are all tokens together.
inline constexpr int32_t kNothingLeft = -2;

// A token with its log-probability and those of the most probable ones, in descending order.
struct ChosenToken {
  int32_t id = kNotFinite;
  double logprob = 0;
  std::vector<TokenLogprob> top = {};
  int64_t rank = 0;  // of a token of the prompt, from 1: its place among all by probability
};

struct StepOutcome {
  uint64_t number = 0;
  // Of the sequences that sample, in the plan's order. Of one with guesses as many as came true and
  // one more: one is followed by another of the same sequence where it is the guess.
  std::vector<ChosenToken> chosen;
  // Of the sequences with asked > 0, in the plan's order: the tokens behind those asked.
  std::vector<std::vector<ChosenToken>> prompt;
  // Of the sequences that embed, in the plan's order: the last token behind the final norm (C).
  std::vector<std::vector<float>> embeddings;
  // Seconds that choosing and scoring tokens took, of each of the plan's sequences; empty: not
  // known. And those in which the executor did nothing else.
  std::vector<float> choice_seconds = {};
  double choosing_seconds = 0;
};

// Runs plans, one after the other.
class StepExecutor {
 public:
  virtual ~StepExecutor() = default;
  virtual StepOutcome execute(const StepPlan& plan) = 0;
  // Seconds of the last execute() in which this process did not compute or wait, but told other
  // ranks the plan.
  virtual double tell_seconds() const { return 0; }
  // When execute() has thrown, only the sequences of its plan are lost: the next plan may go on
  // with others.
  virtual bool survives_failures() const { return false; }
};

}  // namespace trireme
