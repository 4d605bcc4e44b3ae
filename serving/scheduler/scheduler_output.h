// Plan and result of one engine step, which every rank computes. A rank keeps, for each slot, the
// block table of its sequence and, where tokens are sampled, the SamplingParams; a plan has the
// changes.
//
// A plan holds no strings of a request, neither text nor names: all that a rank can do with it is
// run the model.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "serving/scheduler/sampling_params.h"

namespace trireme {

// A sequence enters a slot, for the first time or after preemption.
struct SlotStart {
  int32_t slot = 0;
  int64_t prompt_tokens = 0;     // number of prompt tokens at the start of `history`
  std::vector<int32_t> history;  // prompt and completion so far; empty if the choice needs none
  int64_t generated = 0;         // tokens of the completion so far
  uint64_t draw = 0;             // random stream of the sequence (sampling_params.h)
  int32_t adapter = -1;          // index of the LoRA adapter; -1: base model
  std::shared_ptr<const SamplingParams> choice;
};

// Consecutive tokens of one sequence after those in its cache.
struct SequenceStep {
  int32_t slot = 0;
  int32_t first_token = 0, tokens = 0;  // range of SchedulerOutput::tokens
  int32_t past = 0;                     // tokens before them
  int32_t kept_blocks = 0;              // first blocks of the slot's table that are kept
  int32_t first_block = 0, blocks = 0;  // range of SchedulerOutput::blocks that is appended to them
  bool samples = false;                 // samples the token after the last of these
  // Number of draft tokens at the end of the tokens (serving/scheduler/speculation.h). With
  // `samples`, the token after the last other one is sampled. As long as a sample equals its draft
  // token, the next one is sampled too.
  int32_t draft_tokens = 0;
  bool embeds = false;  // the last token is the end of a prompt to embed
  // First row of the sequence's masks in SchedulerOutput::masks: for the next token, then one row
  // after each draft token; -1: all tokens are allowed.
  int32_t mask = -1;
  // Prompt log-probabilities: scores the token after each of the tokens [first_asked, first_asked +
  // asked) of this step.
  int32_t first_asked = 0, asked = 0;
  int32_t following = -1;  // token after the last of these, used if the step ends there; -1: none
};

struct SchedulerOutput {
  uint64_t number = 0;  // step number, from 1
  std::vector<SlotStart> starts;
  std::vector<SequenceStep> sequences;
  std::vector<int32_t> tokens, blocks;
  std::vector<uint32_t> masks;  // (rows, ceil(V / 32)): bit id % 32 of word id / 32: id is allowed

  bool empty() const { return sequences.empty(); }
};

struct TokenLogprob {
  int32_t id = 0;
  double logprob = 0;
};

// Values in place of a token id.
inline constexpr int32_t kNotFinite = -1;  // the logits are not finite
// The choice and the mask together forbid every token.
inline constexpr int32_t kNothingLeft = -2;

// Token with its log-probability and those of the most probable tokens, in descending order.
struct OutputToken {
  int32_t id = kNotFinite;
  double logprob = 0;
  std::vector<TokenLogprob> top = {};
  int64_t rank = 0;  // of a prompt token: its position by probability, from 1
};

struct StepOutput {
  uint64_t number = 0;
  // Sampled tokens of the sequences that sample, in the plan's order. Each sequence has its
  // accepted draft tokens and one more: after a token that equals its draft token, the next one is
  // of the same sequence.
  std::vector<OutputToken> chosen;
  // Scored prompt tokens of the sequences with asked > 0, in the plan's order.
  std::vector<std::vector<OutputToken>> prompt;
  // (C) of the sequences that embed, in the plan's order: last token's state after the final norm.
  std::vector<std::vector<float>> embeddings;
  // Seconds spent on sampling and scoring, for each of the plan's sequences; empty: unknown.
  std::vector<float> choice_seconds = {};
  // Wall-clock seconds in which the executor only sampled and scored.
  double choosing_seconds = 0;
};

// Executor of plans, one at a time.
class StepExecutor {
 public:
  virtual ~StepExecutor() = default;
  virtual StepOutput execute(const SchedulerOutput& plan) = 0;
  // Seconds that this process spent in the last execute() sending the plan to other ranks, which
  // are neither compute nor waiting time.
  virtual double report_seconds() const { return 0; }
  // True if an exception from execute() affects only the sequences of its plan: the next plan may
  // continue with the others.
  virtual bool survives_failures() const { return false; }
};

}  // namespace trireme
