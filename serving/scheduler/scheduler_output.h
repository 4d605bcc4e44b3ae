// Plan of one engine step, which every rank executes, and its result. For each slot a rank keeps
// the block tables and the SamplingParams of the sequence. A plan contains only the changes to
// them.
//
// A plan contains only numbers, no text or names of a request: a rank can do nothing with it but
// run the model.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "serving/scheduler/sampling_params.h"

namespace trireme {

// Entry of a sequence into a slot, for the first time or after preemption.
struct SlotStart {
  int32_t slot = 0;
  int64_t prompt_tokens = 0;  // number of prompt tokens at the start of `history`
  std::vector<int32_t>
      history;  // prompt and completion so far; empty if `sampling_params` does not need it
  int64_t generated = 0;  // tokens of the completion so far
  uint64_t draw = 0;      // random stream of the sequence (sampling_params.h)
  int32_t adapter = -1;   // index of the LoRA adapter; -1: base model
  std::shared_ptr<const SamplingParams> sampling_params;
};

// Consecutive tokens of one sequence after those in its cache.
struct SequenceStep {
  int32_t slot = 0;
  int32_t first_token = 0, tokens = 0;  // range of SchedulerOutput::tokens
  int32_t past = 0;                     // tokens before them
  bool samples = false;                 // samples the token after the last of these
  // Number of draft tokens at the end of the tokens (serving/scheduler/speculation.h). With
  // `samples`, sampling starts after the last token that is not a draft, and continues while each
  // sample equals the draft token.
  int32_t draft_tokens = 0;
  bool embeds = false;  // returns the embedding of the last token, the end of a prompt
  // First row of the sequence's masks in SchedulerOutput::masks: for the next token, then one row
  // after each draft token; -1: all tokens are allowed.
  int32_t mask = -1;
  // Prompt log-probabilities: scores the token after each of the tokens [first_scored,
  // first_scored + scored) of this step.
  int32_t first_scored = 0, scored = 0;
  // Id of the token after the scored range, perhaps not in this step; -1: nothing is scored.
  int32_t following = -1;
};

// Change of a block table (serving/scheduler/block_table.h) of a sequence's slot.
struct TableStep {
  int32_t first = 0;                    // BlockTable::first: the table drops the blocks before it
  int32_t kept_blocks = 0;              // blocks that remain after the drop
  int32_t first_block = 0, blocks = 0;  // range of SchedulerOutput::blocks to append
};

struct SchedulerOutput {
  uint64_t number = 0;  // step number, from 1
  std::vector<SlotStart> starts;
  std::vector<SequenceStep> sequences;
  std::vector<TableStep> tables;  // (sequences, groups of layers)
  // tokens: ids, by sequence. blocks: numbers of the KV blocks to append, by table.
  std::vector<int32_t> tokens, blocks;
  std::vector<uint32_t> masks;  // (rows, ceil(V / 32)): bit id % 32 of word id / 32: id is allowed

  bool empty() const { return sequences.empty(); }
};

struct TokenLogprob {
  int32_t id = 0;
  double logprob = 0;
};

// Values of OutputToken::id when no token could be sampled.
inline constexpr int32_t kNotFinite = -1;  // a logit is NaN or +infinity, or all are -infinity
// SamplingParams and mask together forbid every token.
inline constexpr int32_t kNothingLeft = -2;

// Token with its log-probability and those of the most probable tokens, in descending order.
struct OutputToken {
  int32_t id = kNotFinite;
  double logprob = 0;
  std::vector<TokenLogprob> top = {};
  int64_t rank = 0;  // of a prompt token: its rank by probability, from 1; 0: a sampled token
};

struct StepOutput {
  uint64_t number = 0;
  // Sampled tokens of the sequences that sample, in the plan's order. Each sequence has its
  // accepted draft tokens and one more. So a token that equals its draft token is followed by one
  // of the same sequence.
  std::vector<OutputToken> sampled;
  // Scored prompt tokens of the sequences with scored > 0, in the plan's order.
  std::vector<std::vector<OutputToken>> prompt;
  // Embeddings (C) of the sequences that embed, in the plan's order: hidden state of the last token
  // after the final norm.
  std::vector<std::vector<float>> embeddings;
  // Seconds spent on sampling and scoring, for each of the plan's sequences; empty: unknown.
  std::vector<float> sampling_seconds = {};
  // Wall-clock seconds in which the executor only sampled and scored.
  double total_sampling_seconds = 0;
};

// Interface of executors, which run one plan at a time.
class StepExecutor {
 public:
  virtual ~StepExecutor() = default;
  virtual StepOutput execute(const SchedulerOutput& plan) = 0;
  // Seconds that the last execute() spent on sending the plan to other ranks: neither compute time
  // nor waiting time.
  virtual double plan_send_seconds() const { return 0; }
  // True if an exception from execute() affects only the sequences of its plan: the next plan may
  // continue with the others.
  virtual bool survives_failures() const { return false; }
};

}  // namespace trireme
