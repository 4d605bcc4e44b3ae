// Drafter with a second, smaller model (Leviathan, Kalman and Matias 2023).
//
// Each drafted sequence has a slot, a block table and blocks in the drafter's own KV cache. A call
// drafts for all sequences together: one step computes the tokens that the draft model has not seen
// yet, in chunks if there are many; each further step adds one token to every draft.
//
// Draft tokens are sampled with the sequence's own parameters, seed and positions, but without the
// masks of a rule, which the scheduler applies to the drafts. Both models invert their distribution
// at the same random number, so they mostly sample the same token where the distributions are
// similar. Drafts are verified like any others (serving/scheduler/speculation.h), so the output
// does not depend on the draft model.
//
// Keys of rejected draft tokens are overwritten when their positions are computed again. A sequence
// gets no draft if the drafter has not computed all of its tokens yet, or has no free slot or too
// few free blocks for it.
#pragma once

#include <memory>
#include <unordered_map>

#include "serving/scheduler/drafter.h"
#include "serving/scheduler/kv_block_pool.h"
#include "serving/scheduler/scheduler_output.h"

namespace trireme {

struct DraftLimits {
  int64_t sequences = 0;    // maximum drafted at a time; number of slots
  int64_t step_tokens = 0;  // maximum per step, at least `sequences`
  // Maximum computed tokens of a sequence and its draft; longer sequences get no draft.
  int64_t length = 0;
  int64_t blocks = 0, block_tokens = 16;  // of the drafter's KV cache; tokens per block
};

class ModelDrafter final : public Drafter {
 public:
  // executor: has these limits and no adapters.
  ModelDrafter(std::unique_ptr<StepExecutor> executor, const DraftLimits& limits);

  // Each call computes at most step_tokens tokens that the draft model has not seen yet, first
  // those of the sequences with the fewest.
  std::vector<std::vector<int32_t>> propose(std::span<const DraftRequest> requests) override;
  void forget(const Sequence& sequence) override;
  int64_t used_blocks() const { return pool_.used(); }

 private:
  struct Draft {
    int32_t slot = -1;
    std::shared_ptr<const SamplingParams> sampling_params;
    std::vector<int32_t> blocks;
    int64_t known_blocks = 0;      // blocks that the executor knows
    int64_t computed = 0;          // tokens with keys in the cache: the sequence's, then `drafted`
    int64_t length = 0;            // of the sequence when it was last drafted for
    std::vector<int32_t> drafted;  // draft tokens computed after these `length` tokens
    bool started = false;
  };
  // One sequence of a call.
  struct Line {
    size_t request;
    Draft* draft;
    int64_t left;   // tokens of the sequence still to compute
    int64_t count;  // maximum number of draft tokens
  };
  Draft* draft_of(const Sequence& sequence);
  std::vector<Line> lines_of(std::span<const DraftRequest> requests);
  bool give_blocks(Draft& draft, int64_t tokens);
  void start(SchedulerOutput& plan, Draft& draft, const Sequence& sequence) const;
  static void append(SchedulerOutput& plan, Draft& draft, std::span<const int32_t> tokens,
                     bool samples);
  // Executes the plan, whose sampling sequences are `lines`, appends the draft tokens, and removes
  // the lines whose drafts are complete.
  void run(SchedulerOutput& plan, std::vector<Line>& lines,
           std::vector<std::vector<int32_t>>& drafts);

  std::unique_ptr<StepExecutor> executor_;
  DraftLimits limits_;
  KvBlockPool pool_;
  std::vector<int32_t> free_slots_;
  std::unordered_map<const Sequence*, Draft> drafts_;
  uint64_t plans_ = 0;
};

}  // namespace trireme
