// Engine of a server: one thread schedules steps, runs them and reports results. Any thread may
// submit or cancel a sequence. The thread sleeps while there is nothing to do.
//
// An exception of StepExecutor::execute() ends the step's sequences with that error. The other
// sequences continue if the executor survives failures (StepExecutor::survives_failures());
// otherwise the engine fails: it ends all sequences with the error, and also those submitted later.
// It also fails after kMaxFailures failed steps in a row. Steps that run out of memory do not
// count, since memory is freed as sequences end. Elsewhere in a step, std::bad_alloc ends all
// sequences, and the engine continues; any other exception makes it fail.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "serving/engine/failure.h"
#include "serving/engine/weights_hold.h"
#include "serving/scheduler/scheduler.h"

namespace trireme {

// Progress of a sequence since its last event.
struct SequenceEvent {
  // Log-probabilities of further prompt tokens, in order, from the second token of the prompt on.
  std::vector<OutputToken> prompt = {};
  std::vector<OutputToken> tokens = {};  // sampled tokens, a final stop token included
  std::vector<float> embedding = {};     // (C), of the prompt; with `finish`
  int64_t cached_prompt = 0;             // prompt tokens found in the cache at the first start
  // Time at which the sequence first entered a slot. time_point{}: it has not.
  std::chrono::steady_clock::time_point begun = {};
  std::optional<FinishReason> finish = {};
  Failure error = {};  // with kError
  // With kError: the failure is not specific to the request (engine failed or stopped, weights
  // changed, out of memory), which may be retried.
  bool may_retry = false;
  size_t replica = 0;  // index of the reporting replica (Replicas)
};

// Receives the events of a sequence, on the engine's thread; must not block or throw. Once the
// engine has stopped, it runs on the thread that calls add() or add_siblings(). After cancel(),
// events may still arrive until the engine's thread has processed the cancellation.
using SequenceListener = std::function<void(SequenceEvent&&)>;
using SequenceId = uint64_t;

// Statistics of one step, for the step listener.
struct StepReport {
  int64_t tokens = 0;  // tokens computed, draft tokens included
  int64_t sequences = 0;
  // Sequences whose first completion tokens were reported since the previous StepReport, also those
  // of earlier steps that waited for a grammar mask.
  int64_t first_tokens = 0;
  int64_t keys = 0;           // attended keys, summed over the tokens; ignores attention windows
  int64_t cached_tokens = 0;  // tokens in the cache after the step, summed over its sequences
  // report_seconds: sending the plan to ranks, applying the results and calling the listeners.
  double plan_seconds = 0, draft_seconds = 0, execute_seconds = 0, report_seconds = 0;
};

// Policy for live sequences when the weights change. Sequences of one response can share a hold
// (serving/engine/weights_hold.h).
enum class Handover {
  kWait,    // earlier sequences finish with the old weights, later ones wait for the new ones
  kAbort,   // all sequences end with an error
  kKeep,    // sequences continue with the new weights on keys and values of the old weights
  kBeside,  // for weights that no sequence uses: sequences continue, the cache stays valid
};
// Failure messages.
inline constexpr const char* kEngineStops = "the server is stopping";
inline constexpr const char* kWeightsChange = "the weights of the model are being replaced";
inline constexpr const char* kAllForbidden =
    "every next token is forbidden: bad_words, min_tokens and the structured output together leave "
    "none";
inline constexpr const char* kNoGrammarMemory =
    "grammar memory is full: schemas, expressions and grammars of running requests use all of it";
inline constexpr const char* kNoMemory = "the server is out of memory";

struct EngineCounts {
  SchedulerCounts scheduler;
  int64_t used_blocks = 0, blocks = 0;  // KV blocks that sequences use, and all
  // Indices of the adapters of running and of waiting sequences, each once, ascending.
  std::vector<int32_t> running_adapters = {}, waiting_adapters = {};
};

class Engine {
 public:
  static constexpr int kMaxFailures = 3;
  using StepListener = std::function<void(const StepReport&)>;
  // blocks, block_tokens: number of blocks in the KV cache, and tokens per block. drafter: as for
  // Scheduler. on_step: called after each step that did not fail; may be empty. Only the engine's
  // thread calls executor, drafter and on_step.
  Engine(std::unique_ptr<StepExecutor> executor, const BatchingConfig& config, int64_t blocks,
         int64_t block_tokens, StepListener on_step = {}, std::unique_ptr<Drafter> drafter = {});
  ~Engine();  // stop()
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Submits a sequence. The listener gets its events in order, the last one with `finish`. If the
  // engine has failed or stopped, or has aborted earlier sequences of the hold, the only event is
  // one with kError.
  SequenceId add(SequenceRequest request, SequenceListener listener,
                 const std::shared_ptr<WeightsHold>& hold = nullptr);
  // Submits n sequences with the same prompt; sequence i has random stream request.draw + i. The
  // first computes the prompt; with prefix caching the others start once its full blocks are
  // cached. Only the first reports prompt log-probabilities, all of them before any token of the
  // others, unless it ends before.
  std::vector<SequenceId> add_siblings(const SequenceRequest& request, size_t n,
                                       const std::function<SequenceListener(size_t)>& listener_of,
                                       const std::shared_ptr<WeightsHold>& hold = nullptr);
  // Registers a hold, as the submission of its first sequence would.
  void register_hold(const std::shared_ptr<WeightsHold>& hold);
  // Ends a sequence; does not wait. Its listener is not called once the engine's thread has
  // processed the cancellation. No effect if the sequence has ended.
  void cancel(SequenceId id);
  // Empties the prefix cache on the engine's thread, and waits for it. Not on the engine's thread.
  void forget_prefixes();
  // Runs `work` on the engine's thread between two steps, waits for it and rethrows its exception.
  // Once the engine has stopped, runs it on the calling thread. Not on the engine's thread.
  void between_steps(const std::function<void()>& work);

  // Runs `change`, which gives the executor other weights, on the engine's thread between two
  // steps, and empties the prefix cache unless `how` is kBeside. The future is ready afterwards. It
  // has an Error if the engine fails or stops first, or the exception of `change`: after an
  // InputError the old weights stay in use, after any other exception the engine has failed. Only
  // one change may be pending.
  [[nodiscard]] std::future<void> change_weights(Handover how, std::function<void()> change);

  // Suspends the engine while its executor cannot run. Until resume(), failure() reports `why`, or
  // an earlier failure if there is one, and all sequences end with an error, also those submitted
  // meanwhile. resume() clears any failure, unless the engine has stopped, and empties the prefix
  // cache. Neither call waits.
  void interrupt(const std::string& why);
  void resume();
  // Ends all sequences, and any submitted later, with an error. Waits until the engine's thread has
  // ended. Permanent.
  void stop();

  EngineCounts counts() const;
  // Reason why the executor cannot run; empty: it can.
  Failure failure() const;

 private:
  struct Incoming {
    std::shared_ptr<Sequence> sequence = {};  // nullptr: `id` is cancelled
    SequenceId id = 0;
    SequenceListener listener = {};
    std::function<void()> work = {};  // instead of all other fields
    // Hold of `sequence`. Without a sequence: hold to register if registers_hold, else to release.
    const WeightsHold* hold = nullptr;
    bool registers_hold = false;
    bool is_released() const { return sequence == nullptr && hold != nullptr && !registers_hold; }
  };
  struct Running {
    std::shared_ptr<Sequence> sequence;
    SequenceListener listener;
  };
  struct Change {
    Handover how = Handover::kWait;
    std::function<void()> run;
    std::shared_ptr<std::promise<void>> done;
  };
  void hand_in(std::vector<Incoming> incoming);
  void hand_in_work(std::function<void()> work);
  const WeightsHold* attach_hold(const std::shared_ptr<WeightsHold>& hold);
  void loop();
  bool take_incoming();
  void accept(Incoming& incoming);
  void take_back(SequenceId id);
  void start(Incoming& incoming);
  void release(const WeightsHold* hold);
  void change_if_due();
  void step();
  void run_step();
  bool settle();
  void fail_step(const SchedulerOutput& plan, const Failure& failure, bool may_retry);
  void report_progress(Progress& progress);
  void end_sequences(const Failure& failure);
  void end_all(const Failure& failure);
  bool is_stopped() const;
  static void refuse(std::vector<Incoming>& incoming, const Failure& failure);
  void publish_counts();
  void find_adapters(EngineCounts& counts) const;

  std::unique_ptr<StepExecutor> executor_;
  KvBlockPool pool_;
  Scheduler scheduler_;
  StepListener on_step_;
  int failures_ = 0;          // failed steps in a row
  int64_t first_tokens_ = 0;  // StepReport::first_tokens of the next report
  std::unordered_map<SequenceId, Running> running_;
  std::unordered_map<const Sequence*, SequenceId> ids_;
  int32_t adapters_ = 0;  // largest adapter index used so far + 1
  std::shared_ptr<MaskPace> pace_;
  bool stalled_ = false;          // nothing can run until a mask is ready
  std::optional<Change> change_;  // pending
  std::vector<Incoming> held_;    // waits for that change
  // Registered holds, by address. True: further sequences of the hold are refused, since its
  // earlier ones may have run on other weights.
  std::unordered_map<const WeightsHold*, bool> holds_;

  mutable std::mutex mutex_;  // guards the members below, to counts_
  std::condition_variable wake_;
  std::vector<Incoming> incoming_;
  bool stop_ = false, stopped_ = false;
  bool masks_came_ = false;  // since the loop last checked
  Failure failure_;
  EngineCounts counts_;
  std::atomic<SequenceId> next_id_{1};
  std::thread thread_;
};

}  // namespace trireme
