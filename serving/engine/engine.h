// The engine of a server: one thread schedules, has steps computed and tells what comes of them;
// any others hand in sequences and take them back. It sleeps while there is nothing to do.
//
// When a step throws, its sequences end with the error and the others go on, where the executor
// can. With one that cannot, and after kMostFailures such steps one after the other, the engine has
// failed. Steps that lack memory do not count: it comes back as sequences end. What lacks it
// outside the executor ends all sequences, and the engine goes on.
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

// What has come of a sequence since the last time.
struct SequenceEvent {
  std::vector<ChosenToken> prompt = {};  // log-probabilities of tokens of the prompt
  std::vector<ChosenToken> tokens = {};  // of the text; the one that ends it included
  std::vector<float> embedding = {};     // of the prompt, with the end
  int64_t cached_prompt = 0;             // tokens of the prompt that were in the cache
  // When it was first computed; none: never yet.
  std::chrono::steady_clock::time_point begun = {};
  std::optional<FinishReason> finish = {};
  Failure error = {};  // with kError
  // With kError: to the engine, and not by what was asked for. It may be asked for again.
  bool of_engine = false;
  size_t replica = 0;  // of Replicas, that tells it
};

// Called on the engine's thread, which must not be kept, and nothing thrown to; once the engine has
// stopped, on that of add(). An event may come while the sequence is being cancelled.
using SequenceListener = std::function<void(SequenceEvent&&)>;
using SequenceId = uint64_t;

// What a step has been, for whoever counts.
struct StepReport {
  int64_t tokens = 0;  // computed
  int64_t sequences = 0;
  int64_t first_tokens = 0;  // chosen, of texts that begin
  int64_t keys = 0;          // that its tokens attend to, summed over the tokens
  int64_t cached = 0;        // tokens whose keys it reads, summed over its sequences
  // tell: ranks what to do, and clients what came of it.
  double plan_seconds = 0, draft_seconds = 0, execute_seconds = 0, tell_seconds = 0;
};

// What becomes of sequences when the weights change that compute them; of several that belong
// together, see serving/engine/weights_hold.h.
enum class Handover {
  kWait,  // those that have come before end with the old weights, those that come meanwhile wait for the new ones
  kAbort,   // all end with an error
  kKeep,    // they go on: behind the keys and values of the old weights, with the new ones
  kBeside,  // they go on, and what is cached stays: none of them names what changes
};
// Texts of failures of these causes.
inline constexpr const char* kEngineStops = "the server is stopping";
inline constexpr const char* kWeightsChange = "the weights of the model are being replaced";
inline constexpr const char* kAllForbidden =
    "no token may come next: bad_words, min_tokens and what the text must be forbid all of them "
    "together";
inline constexpr const char* kNoGrammarMemory =
    "the memory for schemas, expressions and grammars in use is taken";
inline constexpr const char* kNoMemory = "the server has not enough memory";

struct EngineCounts {
  SchedulerCounts scheduler;
  int64_t used_blocks = 0, blocks = 0;
  std::vector<int32_t> running_adapters = {}, waiting_adapters = {};  // of sequences, each once
};

class Engine {
 public:
  static constexpr int kMostFailures = 3;
  using StepListener = std::function<void(const StepReport&)>;
  // Executor and drafter (Scheduler) are called on the engine's thread only. on_step may be absent.
  Engine(std::unique_ptr<StepExecutor> executor, const BatchingConfig& config, int64_t blocks,
         int64_t block_tokens, StepListener on_step = {}, std::unique_ptr<Drafter> drafter = {});
  ~Engine();  // stop()
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Its events come in order, the last one with `finish`. After the engine has failed that one
  // comes at once.
  SequenceId add(SequenceRequest request, SequenceListener listener,
                 const std::shared_ptr<WeightsHold>& hold = nullptr);
  // The same prompt n times, drawn differently from one choice (request.draw counts on); the first
  // is computed, the others find it. Log-probabilities of the prompt are told with the first alone,
  // before anything of the others.
  std::vector<SequenceId> add_siblings(const SequenceRequest& request, size_t n,
                                       const std::function<SequenceListener(size_t)>& listener_of,
                                       const std::shared_ptr<WeightsHold>& hold = nullptr);
  // As if a sequence of this hold had come: some may come later.
  void begin(const std::shared_ptr<WeightsHold>& hold);
  // It ends without an event. Nothing if it has ended.
  void cancel(SequenceId id);
  // No prefix is found any more that was computed before. After the weights have changed, with
  // nothing running.
  void forget_prefixes();
  // Runs `work` on the engine's thread between two steps and waits for it.
  void between_steps(const std::function<void()>& work);

  // Runs `change`, which gives the executor other weights, on the engine's thread between two
  // steps, after which the future is ready; but for kBeside nothing is found in the cache then that
  // was computed before. The future has an Error where the engine fails or stops before it comes to
  // that, and what `change` throws: after an InputError the old weights go on, with any other the
  // engine has failed. One at a time.
  [[nodiscard]] std::future<void> change_weights(Handover how, std::function<void()> change);

  // The executor cannot compute for now, as failure() says at once: sequences end with an error,
  // those that come too, until resume(); from then on nothing is found in the cache that was
  // computed before. Neither waits.
  void interrupt(const std::string& why);
  void resume();
  // Ends the sequences that are still there, and any that come later, with an error. Once stopped,
  // it stays so.
  void stop();

  EngineCounts counts() const;
  // Why the executor has failed; empty: it has not, or has been resumed.
  Failure failure() const;

 private:
  struct Incoming {
    std::shared_ptr<Sequence> sequence = {};  // absent: `id` is cancelled
    SequenceId id = 0;
    SequenceListener listener = {};
    std::function<void()> work = {};    // in the place of both
    const WeightsHold* hold = nullptr;  // of the sequence; without sequence and id: it has ended
    bool begins = false;                // the hold does, without a sequence
    bool is_released() const { return sequence == nullptr && hold != nullptr && !begins; }
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
  const WeightsHold* know(const std::shared_ptr<WeightsHold>& hold);
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
  void fail_step(const StepPlan& plan, const Failure& failure, bool of_engine);
  void tell(Progress& progress);
  void end_sequences(const Failure& failure);
  void end_all(const Failure& failure);
  bool is_stopped() const;
  static void refuse(std::vector<Incoming>& incoming, const Failure& failure);
  void publish_counts();
  void find_adapters(EngineCounts& counts) const;

  std::unique_ptr<StepExecutor> executor_;
  BlockPool pool_;
  Scheduler scheduler_;
  StepListener on_step_;
  int failures_ = 0;  // steps that have failed since one did not
  std::unordered_map<SequenceId, Running> running_;
  std::unordered_map<const Sequence*, SequenceId> ids_;
  int32_t adapters_ = 0;  // that sequences have had are below this
  std::shared_ptr<MaskPace> pace_;
  bool stalled_ = false;          // nothing can be computed before a mask is there
  std::optional<Change> change_;  // that is due, or waits
  std::vector<Incoming> held_;    // sequences that wait for it
  // Whose sequences have started, by their addresses; true: the weights have changed, and no more
  // may come of it.
  std::unordered_map<const WeightsHold*, bool> holds_;

  mutable std::mutex mutex_;  // of all below
  std::condition_variable wake_;
  std::vector<Incoming> incoming_;
  bool stop_ = false, stopped_ = false;
  bool masks_came_ = false;  // since the loop last looked
  Failure failure_;
  EngineCounts counts_;
  std::atomic<SequenceId> next_id_{1};
  std::thread thread_;
};

}  // namespace trireme
