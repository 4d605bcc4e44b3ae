// Scheduler of continuous batching (Yu et al., OSDI 2022) with chunked prefill next to decoding
// (Agrawal et al. 2023, "Sarathi"): plans the tokens and sequences of each step.
//
// A step has at most max_step_tokens tokens of at most max_sequences sequences. Decoding sequences
// come first, one token each. The rest of the token budget is for prompts: running sequences before
// waiting ones, each group in the order of (priority, arrival). A sequence starts when token budget
// is left, a slot is free, and the pool has blocks for all of its tokens so far, plus one for each
// running sequence and group of layers (serving/scheduler/sequence_blocks.h).
//
// Preemption: when a running sequence needs a block and none is free, the last running sequence in
// that order releases its blocks and waits again, at its old position. Its tokens are computed
// again later, except those whose published blocks are still in the cache.
//
// A sequence whose grammar mask is not ready (RuleReader::State::kPending) waits, keeping its slot
// and blocks, while others continue. settle() reports the tokens of its last step once the mask is
// ready.
//
// While sequences of several tenants decode, those of tenants whose tokens take long to sample take
// turns (serving/scheduler/sampling_turns.h).
//
// With speculation a decoding sequence gets draft tokens after its last token, as far as the token
// budget and the free blocks allow, unless drafting has proved slower
// (serving/scheduler/speculation_switch.h).
//
// Not thread-safe. next() may run several steps ahead of done(); done() gets the results in the
// order of the plans.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>

#include "serving/scheduler/drafter.h"
#include "serving/scheduler/sampling_turns.h"
#include "serving/scheduler/scheduler_output.h"
#include "serving/scheduler/sequence_blocks.h"
#include "serving/scheduler/speculation_switch.h"

namespace trireme {

struct BatchingConfig {
  int64_t max_sequences = 256;
  int64_t max_step_tokens = 2048;  // at least max_sequences
  int64_t max_model_len = 0;       // maximum tokens of a sequence; must fit into the pool
  // Window of each group of layers in the cache: kv_windows() (transformer/pass/kv_groups.h).
  std::vector<int64_t> windows = {0};
  bool prefix_caching = true;
  SpeculationConfig speculation = {};
};

struct SchedulerCounts {
  int64_t running = 0, waiting = 0;
  int64_t preemptions = 0;                      // since start, as all counts below
  int64_t prefix_queries = 0, prefix_hits = 0;  // prompt tokens looked up in the cache, and found
  int64_t drafts = 0, draft_tokens = 0;         // drafts verified, and their tokens
  int64_t accepted_tokens = 0;                  // draft tokens accepted
  double draft_seconds = 0;                     // spent on drafting
  int64_t speculation_changes = 0;              // times that speculation was switched on or off
  bool speculates = false;                      // speculation was on in the last decoding step
  int64_t failed_steps = 0;                     // passed to failed()
  double speculation_gain = 0;                  // SpeculationSwitch::gain()
};

// Result of a step for one sequence.
struct Progress {
  std::shared_ptr<Sequence> sequence;
  std::vector<OutputToken> prompt = {};  // prompt log-probabilities
  std::vector<float> embedding = {};     // (C), of the prompt
  std::vector<OutputToken> tokens = {};  // sampled; those with id >= 0 are in sequence->tokens, too
  std::optional<FinishReason> finish = {};  // set: the sequence has ended
  // Causes of kError that no token id reports. nothing_left: the rule allows no further token
  // before min_tokens. lacks_memory: out of memory for the rule's masks.
  bool nothing_left = false, lacks_memory = false;
  bool has_results() const { return !tokens.empty() || finish || !prompt.empty(); }
};

class Scheduler {
 public:
  // drafter: used if config.speculation.tokens > 0; nullptr: a TextDrafter.
  Scheduler(const BatchingConfig& config, KvBlockPool& pool, std::unique_ptr<Drafter> drafter = {});

  // Queues a sequence. Its prompt has at most max_model_len - 1 tokens, or max_model_len if nothing
  // is computed after it (Sequence::is_whole_prompt()); CheckFailed if it has more.
  void add(std::shared_ptr<Sequence> sequence);
  // Ends a sequence in any state; the next plan may reuse its blocks. No effect if it has ended.
  void cancel(Sequence& sequence);
  // Drops the unreported progress of cancelled sequences. Until then their grammars stay in memory.
  // Call after cancel(), but not inside settle().
  void forget_ended();

  // Plans the next step. Empty: there is no sequence, or none can run until the result of a step in
  // flight or a mask arrives.
  SchedulerOutput next();
  // True if a sequence was left out of the last plan because its mask was not ready.
  bool waits_for_masks() const { return waits_for_masks_; }
  // Returns the progress of sequences whose masks have become ready, or cannot be made. Call before
  // next().
  std::vector<Progress> settle();
  // Applies the result of a step and returns the progress of its sequences that have results. The
  // tokens of those whose next mask is not ready follow in settle().
  std::vector<Progress> done(const SchedulerOutput& plan, StepOutput result);
  // Replaces done() for a failed step: ends its sequences and returns them.
  std::vector<std::shared_ptr<Sequence>> failed(const SchedulerOutput& plan);
  // Reports the duration of the last step passed to done(), planning included. Without these
  // reports speculation is never switched off, and sequences take no turns to sample.
  void report_step_seconds(double seconds);

  // Discards all steps in flight; their sequences must have been cancelled.
  void forget_steps() { under_way_.clear(); }

  bool idle() const { return running_.empty() && waiting_.empty(); }
  const SchedulerCounts& counts() const;

 private:
  using Order = std::pair<int, uint64_t>;  // priority, arrival
  static Order order(const Sequence& s) { return {s.priority, s.arrival}; }
  bool decodes(const Sequence& s) const { return s.computed + 1 == s.length(); }
  bool has_prompt_left(const Sequence& s) const { return s.computed + 1 < s.length(); }
  struct UnderWay;
  UnderWay take_under_way(uint64_t number);
  struct Draft {
    std::vector<int32_t> ids = {};
    std::vector<uint32_t> masks = {};  // after each of them, if the sequence has a rule
  };
  bool is_due(Sequence& sequence);
  void give_turns();
  void note_seconds(const SchedulerOutput& plan, const UnderWay& step, const StepOutput& result);
  void propose_drafts();
  void plan_decoding(SchedulerOutput& plan, int64_t& budget);
  void plan_prompts(SchedulerOutput& plan, int64_t& budget);
  int64_t prompt_part(const Sequence& sequence, int64_t tokens);
  void plan_waiting(SchedulerOutput& plan, int64_t& budget);
  bool waits_for_sibling(const Sequence& sequence) const;
  bool may_start(Sequence& sequence);
  void start(SchedulerOutput& plan, const std::shared_ptr<Sequence>& sequence);
  void preempt(Sequence& sequence);
  void append(SchedulerOutput& plan, const std::shared_ptr<Sequence>& sequence, int64_t tokens,
              const Draft& draft);
  void advance(Progress& progress, const SequenceStep& part, uint64_t starts,
               std::span<OutputToken> chosen);
  void verify(Progress& progress, const SequenceStep& step, std::span<OutputToken> chosen,
              bool cached);
  void ask(SequenceStep& step, Sequence& sequence) const;
  void leave(Sequence& sequence);
  // Appends the sampled token and checks the stop conditions.
  void accept(Progress& progress, OutputToken token);
  void read(Progress& progress);
  void conclude(Progress& progress);
  bool has_mask(Sequence& sequence);
  std::optional<FinishReason> finish_of(const Sequence& sequence) const;

  BatchingConfig config_;
  KvBlockPool& pool_;
  SequenceBlocks blocks_;
  std::unique_ptr<Drafter> drafter_;
  SpeculationSwitch switch_;
  SamplingTurns turns_;
  // Draft requests and drafts of the plan being made.
  std::vector<DraftRequest> draft_requests_;
  std::unordered_map<const Sequence*, Draft> drafts_;
  std::map<Order, std::shared_ptr<Sequence>> waiting_, running_;
  std::vector<int32_t> free_slots_;
  // Progress of sequences that wait for masks, or whose first mask cannot be made.
  std::vector<Progress> held_;
  bool waits_for_masks_ = false;
  bool preempted_ = false;  // in the plan being made
  // Arrival of the sequence that was last refused for lack of blocks, and number of free blocks at
  // that time.
  uint64_t refused_ = 0;
  int64_t refused_free_ = 0;
  // Sequences of the planned steps without a result yet, in the order of the plans.
  struct UnderWay {
    uint64_t number = 0;
    bool speculates = false;
    struct Member {
      std::shared_ptr<Sequence> sequence;
      uint64_t starts;  // Sequence::starts when it was planned
    };
    std::vector<Member> members;
  };
  std::deque<UnderWay> under_way_;
  std::optional<DecodeTiming> decoded_;  // last finished step, if it only decoded
  SamplingTiming sampling_timing_;       // of the last finished step
  uint64_t arrivals_ = 0, plans_ = 0;
  mutable SchedulerCounts counts_;
};

}  // namespace trireme
