// Guesses of a second, smaller model (Leviathan, Kalman and Matias 2023).
//
// The draft has a slot, a table and blocks of its own for each sequence that it guesses for, in a
// cache of its own, and writes a continuation of every text at once: one step over what it has not
// seen of the texts, in chunks where that is much, then one token of each text after the other. Its
// tokens are chosen with the sequence's own sampling, seed and positions. Where draft and model
// give much the same probabilities they so draw much the same tokens: both invert their
// distributions at the same random number. What is kept of a guess is decided as for any other
// (serving/scheduler/speculation.h), so the draft changes no text.
//
// The keys of guesses that did not come true are overwritten when their positions are computed
// again. A sequence whose text is not computed yet, or for which there are no blocks, gets no
// guesses.
#pragma once

#include <memory>
#include <unordered_map>

#include "serving/scheduler/block_pool.h"
#include "serving/scheduler/drafter.h"
#include "serving/scheduler/step_plan.h"

namespace trireme {

struct DraftLimits {
  int64_t sequences = 0;    // that it guesses for at a time: its slots
  int64_t step_tokens = 0;  // at least as many
  int64_t length = 0;       // tokens of a text and its guesses: longer ones get none
  int64_t blocks = 0, block_tokens = 16;
};

class ModelDrafter final : public Drafter {
 public:
  // The executor has these limits, and no adapters.
  ModelDrafter(std::unique_ptr<StepExecutor> executor, const DraftLimits& limits);

  // At most step_tokens tokens of texts are caught up with in a call, the shortest rests first.
  std::vector<std::vector<int32_t>> guess(std::span<const DraftWish> wishes) override;
  void forget(const Sequence& sequence) override;
  int64_t used_blocks() const { return pool_.used(); }

 private:
  struct Draft {
    int32_t slot = -1;
    std::shared_ptr<const TokenChoice> choice;
    std::vector<int32_t> blocks;
    int64_t told_blocks = 0;       // of them the executor knows
    int64_t computed = 0;          // tokens whose keys the cache holds: of the text, then of
    int64_t length = 0;            // (where the text ended when it was last guessed for)
    std::vector<int32_t> guessed;  // these
    bool started = false;
  };
  // One text of a call.
  struct Line {
    size_t wish;
    Draft* draft;
    int64_t left;   // tokens of the text to compute
    int64_t count;  // guesses
  };
  Draft* draft_of(const Sequence& sequence);
  std::vector<Line> lines_of(std::span<const DraftWish> wishes);
  bool give_blocks(Draft& draft, int64_t tokens);
  void start(StepPlan& plan, Draft& draft, const Sequence& sequence) const;
  static void append(StepPlan& plan, Draft& draft, std::span<const int32_t> tokens, bool samples);
  // Has the plan computed, and keeps of the lines, which are its sequences that sample, those that
  // go on.
  void run(StepPlan& plan, std::vector<Line>& lines, std::vector<std::vector<int32_t>>& guesses);

  std::unique_ptr<StepExecutor> executor_;
  DraftLimits limits_;
  BlockPool pool_;
  std::vector<int32_t> free_slots_;
  std::unordered_map<const Sequence*, Draft> drafts_;
  uint64_t plans_ = 0;
};

}  // namespace trireme
