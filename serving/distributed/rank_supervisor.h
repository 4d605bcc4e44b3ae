// Keeps a group of ranks alive from outside: starts them, sends them plans, notices when one is
// lost or stuck, ends the others (ranks that wait inside a step for one that is gone are of no more
// use) and starts all again.
//
// One thread starts, watches and ends them; execute() is called on the engine's. What a rank is
// lost by:
//   its process or its side channel ends; it sends something that is no message; it is stopped, or silent
//   (rank_watch.h); a step takes longer than StepDeadline allows.
// They start again a tenth of a second later; where they are lost before they have computed
// anything, after a pause that doubles up to half a minute.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "serving/distributed/rank_loop.h"
#include "serving/distributed/rank_processes.h"
#include "serving/distributed/rank_watch.h"
#include "serving/distributed/side_meeting.h"
#include "serving/scheduler/step_plan.h"

namespace trireme {

// For those whose requests end by it. Which process, and what happened to it, is for the log.
inline constexpr const char* kRanksLost =
    "a rank of the model was lost; the server is ready again when all ranks have reloaded";

struct RankGroupConfig {
  int ranks = 1;
  RankLauncher launcher = RankLauncher::kLocal;
  std::vector<std::string> command;  // of each rank
  RankTask task = {};                // what it is told then
  std::string address =
      {};  // TCP: of this machine for ranks on others; empty: what its name stands for
  GroupPlace place = {};                       // beside other groups
  StepDeadline::Seconds least_step{10};        // StepDeadline's
  std::chrono::milliseconds meeting{120'000};  // for all ranks to connect, whoever else does
};

struct RankGroupCounts {
  bool ready = false;
  int64_t starts = 0;  // of the whole group
};

class RankSupervisor {
 public:
  // why: the ranks are lost; empty: they are ready. Called on the supervisor's thread.
  using Listener = std::function<void(const std::string& why)>;

  explicit RankSupervisor(RankGroupConfig config);
  ~RankSupervisor();  // lets the ranks end, kills those that have not after five seconds
  RankSupervisor(const RankSupervisor&) = delete;
  RankSupervisor& operator=(const RankSupervisor&) = delete;

  // Waits for the first start. Where it fails it is not tried again: Error with the exit code of
  // the rank that failed, ReportedError where that rank has logged bad input; it names the replica
  // where there are others.
  RankReady wait_until_ready();
  // The same, but no longer than that; absent: they are still being started.
  std::optional<RankReady> wait_until_ready(std::chrono::milliseconds limit);
  // From now on; once this returns the one before is not called any more.
  void listen(Listener listener);
  // Error(kLostRank) with kRanksLost when a rank is lost meanwhile, or was before and all are not
  // ready again; whatever else goes wrong has the ranks start again too.
  StepOutcome execute(const StepPlan& plan);
  double tell_seconds() const { return tell_seconds_; }  // StepExecutor's
  RankGroupCounts counts() const;

  // As of ModelWeights. stage(): InputError with what one of the ranks says, Error(kLostRank) when
  // they are lost meanwhile.
  void stage(const StageRequest& request);
  // Ranks that start from now on load what is named, which others may have staged; those that have
  // loaded something else, or are about to, and have not staged it, start again.
  void commit(const StageRequest& request);
  // After commit(). Error(kLostRank) when the ranks are lost meanwhile, or were. Nothing where
  // other ranks have started since.
  void use();
  void drop();
  void forget_adapter(int32_t slot);

 private:
  // Ranks from one start to their end.
  struct Group {
    std::unique_ptr<RankProcesses> processes;
    std::vector<std::unique_ptr<SideChannel>> channels;
    std::vector<int> numbers;        // their processes
    std::vector<uint64_t> computed;  // the last steps that they say they have
    bool on_this_machine = true;
    uint64_t task = 0;  // what it was told to load: task_ at the time
    RankReady ready;    // what rank 0 has said of all
    size_t loaded = 0;  // ranks that have
  };
  // Of weights: what the ranks of a group have answered.
  struct Change {
    std::shared_ptr<Group> group;
    uint64_t number = 0;
    size_t answers = 0;   // to the last question
    std::string refusal;  // the first
    bool staged = false;  // by all
  };
  struct Step {
    uint64_t number = 0;  // 0: none is under way
    int64_t tokens = 0;
    std::chrono::steady_clock::time_point began;
  };

  std::shared_ptr<Group> begin_step(const StepPlan& plan);
  std::vector<std::byte> wait_for_outcome(const Group& group);
  void ask_all(const Group& group, MessageKind kind, std::span<const std::byte> payload = {});
  std::string wait_for_answers(const std::shared_ptr<Group>& group);
  void loop();
  std::string run_group();  // until it is lost: why; or until the end is asked for
  void meet(Group& group, SideListener& listener);
  void watch(const std::shared_ptr<Group>& group);
  void take(Group& group, size_t rank, Message message);
  void say_ready(const std::shared_ptr<Group>& group);
  void say_lost(const std::string& why);
  void check_step(const Group& group) const;
  void let_end(Group& group);
  bool stopping() const;
  bool pause(std::chrono::milliseconds time);  // false: the end was asked for

  RankGroupConfig config_;
  const std::string name_;   // for the log; empty where there are no other groups
  double tell_seconds_ = 0;  // the engine's thread's
  std::mutex listening_;     // of the listener, while it is called
  Listener listener_;

  mutable std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::shared_ptr<Group> group_;  // while it is ready
  std::optional<RankReady> first_;
  std::string why_ = "the ranks are being started";
  ExitCode failed_ = ExitCode::kDone;  // of the first start
  bool said_by_rank_ = false;          // likewise: ranks were started, which log their errors
  Step step_;
  Change change_;
  std::optional<std::vector<std::byte>> outcome_;
  StepDeadline deadline_;
  uint64_t task_ = 0;                  // counts changes of config_.task
  int64_t starts_ = 0, outcomes_ = 0;  // outcomes: of the last start
  bool stop_ = false;
  std::thread thread_;
};

// The executor of a process that leads ranks from outside: it computes nothing itself.
class RemoteExecutor final : public StepExecutor {
 public:
  explicit RemoteExecutor(RankSupervisor& ranks) : ranks_(ranks) {}
  StepOutcome execute(const StepPlan& plan) override { return ranks_.execute(plan); }
  double tell_seconds() const override { return ranks_.tell_seconds(); }

 private:
  RankSupervisor& ranks_;
};

}  // namespace trireme
