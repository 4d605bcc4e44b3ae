// Which tokens of which sequences the next step computes (continuous batching: Yu et al., OSDI
// 2022; prompts in chunks beside decoding: Agrawal et al. 2023, "Sarathi").
//
// A step has at most max_step_tokens tokens of at most max_sequences sequences. Sequences that
// decode come first, one token each; what is left of the budget goes to prompts, those under way
// before those that wait, in the order of (priority, arrival). A sequence starts when a slot is
// free and the pool has blocks for all of its tokens and one more for each that runs. When a
// running one needs a block and there is none, the last of the same order gives up its blocks and
// waits again, in its old place (preemption); its tokens are computed again later, except those
// whose published blocks are still there.
//
// A sequence whose mask is not there yet (RuleReader::State::kPending) waits, and keeps what it
// has, while others go on; what came of its last step is told with what the mask says: settle().
//
// While several tenants' sequences decode, those of one whose tokens take long to choose have turns
// (serving/scheduler/sampling_turns.h).
//
// With speculation a sequence that decodes has guesses behind its token, where the budget and the
// free blocks allow, and where guessing has not turned out slower than not guessing
// (serving/scheduler/speculation_switch.h).
//
// Not for several threads. next() and done() alternate, or next() runs ahead by some steps; each
// plan's result is handed to done() in the order of the plans.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>

#include "serving/scheduler/drafter.h"
#include "serving/scheduler/sampling_turns.h"
#include "serving/scheduler/speculation_switch.h"
#include "serving/scheduler/step_plan.h"

namespace trireme {

struct BatchingConfig {
  int64_t max_sequences = 256;
  int64_t max_step_tokens = 2048;  // at least max_sequences
  int64_t max_model_len = 0;       // tokens of a sequence; its blocks fit into the pool
  bool prefix_caching = true;
  SpeculationConfig speculation = {};
};

struct SchedulerCounts {
  int64_t running = 0, waiting = 0;
  int64_t preemptions = 0;                      // since the beginning, as are
  int64_t prefix_queries = 0, prefix_hits = 0;  // tokens looked for, and found
  int64_t drafts = 0, draft_tokens = 0;         // steps of sequences with guesses, and these
  int64_t accepted_tokens = 0;                  // that came true
  double draft_seconds = 0;                     // that guessing took
  int64_t speculation_changes = 0;              // on or off
  bool speculates = false;                      // the last step that decoded was to have guesses
  int64_t failed_steps = 0;                     // of which nothing came
  double speculation_gain = 0;                  // SpeculationSwitch::gain()
};

// What a step has brought a sequence.
struct Progress {
  std::shared_ptr<Sequence> sequence;
  std::vector<ChosenToken> prompt = {};  // log-probabilities of tokens of the prompt
  std::vector<float> embedding = {};     // of the prompt
  std::vector<ChosenToken> tokens = {};  // chosen; in sequence->tokens but for one whose id is -1
  std::optional<FinishReason> finish = {};  // the sequence has ended
  // With kError and without a token that says so: the rule leaves nothing where min_tokens wants
  // more, or has no memory.
  bool nothing_left = false, lacks_memory = false;
  bool says_something() const { return !tokens.empty() || finish || !prompt.empty(); }
};

class Scheduler {
 public:
  // drafter: guesses where config.speculation has tokens; absent: the texts themselves are looked
  // through.
  Scheduler(const BatchingConfig& config, BlockPool& pool, std::unique_ptr<Drafter> drafter = {});

  // It waits. Its prompt is shorter than max_model_len, or as long where no second token follows.
  void add(std::shared_ptr<Sequence> sequence);
  // It ends now, wherever it is; its blocks may be taken by the next plan. Nothing if it has ended.
  void cancel(Sequence& sequence);
  // After that, outside of settle(): gives up what cancelled sequences were still to be told, and
  // with it their grammars.
  void forget_ended();

  // The next step; empty where nothing can be computed before the results of steps under way, or
  // before masks.
  StepPlan next();
  // A sequence that could have been in the last plan waits for its mask.
  bool waits_for_masks() const { return waits_for_masks_; }
  // What has come of sequences whose masks are there since. Before next().
  std::vector<Progress> settle();
  std::vector<Progress> done(const StepPlan& plan, StepOutcome result);
  // In the place of done(): nothing has come of this step. Its sequences, which have ended with it.
  std::vector<std::shared_ptr<Sequence>> failed(const StepPlan& plan);
  // What the step that was done last took from its planning on. Without such news guessing is never
  // given up, and there are no turns.
  void took(double seconds);

  // Nothing comes of the steps under way any more. After all of their sequences are cancelled.
  void forget_steps() { under_way_.clear(); }

  bool idle() const { return running_.empty() && waiting_.empty(); }
  const SchedulerCounts& counts() const;

 private:
  using Order = std::pair<int, uint64_t>;  // priority, arrival
  static Order order(const Sequence& s) { return {s.priority, s.arrival}; }
  bool decodes(const Sequence& s) const { return s.computed + 1 == s.length(); }
  struct UnderWay;
  UnderWay take_under_way(uint64_t number);
  struct Guesses {
    std::vector<int32_t> ids = {};
    std::vector<uint32_t> masks = {};  // of what may follow each, where a rule says so
  };
  bool is_due(Sequence& sequence);
  void give_turns();
  void note_seconds(const StepPlan& plan, const UnderWay& step, const StepOutcome& result);
  void guess();
  void plan_decoding(StepPlan& plan, int64_t& budget);
  void plan_prompts(StepPlan& plan, int64_t& budget);
  int64_t prompt_part(const Sequence& sequence, int64_t tokens);
  void plan_waiting(StepPlan& plan, int64_t& budget);
  bool waits_for_sibling(const Sequence& sequence) const;
  bool may_start(Sequence& sequence);
  void start(StepPlan& plan, const std::shared_ptr<Sequence>& sequence);
  void find_prefix(Sequence& sequence);
  bool give_blocks(Sequence& sequence, int64_t tokens);
  void preempt(Sequence& sequence);
  void append(StepPlan& plan, const std::shared_ptr<Sequence>& sequence, int64_t tokens,
              const Guesses& guesses);
  void advance(Progress& progress, const SequenceStep& part, uint64_t starts,
               std::span<ChosenToken> chosen);
  void verify(Progress& progress, const SequenceStep& step, std::span<ChosenToken> chosen,
              bool cached);
  void ask(SequenceStep& step, Sequence& sequence) const;
  // Its whole blocks of the first `computed` tokens.
  void publish(Sequence& sequence, int64_t computed);
  void release_blocks(Sequence& sequence);
  void leave(Sequence& sequence);
  // What comes of a token chosen for a sequence: it goes on, or it ends.
  void accept(Progress& progress, ChosenToken token);
  void read(Progress& progress);
  void conclude(Progress& progress);
  bool has_mask(Sequence& sequence);
  std::optional<FinishReason> finish_of(const Sequence& sequence) const;

  BatchingConfig config_;
  BlockPool& pool_;
  std::unique_ptr<Drafter> drafter_;
  SpeculationSwitch switch_;
  SamplingTurns turns_;
  // Of the plan that is being made.
  std::vector<DraftWish> wishes_;
  std::unordered_map<const Sequence*, Guesses> guesses_;
  std::map<Order, std::shared_ptr<Sequence>> waiting_, running_;
  std::vector<int32_t> free_slots_;
  std::vector<Progress>
      held_;  // of sequences that wait for masks, or whose first mask there will never be
  bool waits_for_masks_ = false;
  bool preempted_ = false;  // in the plan that is being made
  // The sequence that last found too few blocks, and how many were free.
  uint64_t refused_ = 0;
  int64_t refused_free_ = 0;
  // Sequences of the plans whose results are not there yet, in the plans' order.
  struct UnderWay {
    uint64_t number = 0;
    bool speculates = false;
    struct Member {
      std::shared_ptr<Sequence> sequence;
      uint64_t starts;  // of it when it was planned
    };
    std::vector<Member> members;
  };
  std::deque<UnderWay> under_way_;
  std::optional<DecodeTiming> decoded_;  // the last step done, if it did nothing else
  ChoiceTiming choices_;                 // of the last step done
  uint64_t arrivals_ = 0, plans_ = 0;
  mutable SchedulerCounts counts_;
};

}  // namespace trireme
