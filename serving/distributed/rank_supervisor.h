// Supervisor of a group of ranks in other processes. Starts them, sends them plans, and detects a
// lost or stuck rank. It then kills the other ranks, which may wait for the lost one inside a step
// for ever, and restarts the whole group.
//
// One thread starts, watches and ends the ranks; execute() is called on the engine's thread. A rank
// is lost when:
//   - it has not connected within RankGroupConfig::rendezvous after its start;
//   - its process or its control channel ends;
//   - it reports an error (kFailed), or sends an invalid message;
//   - after a restart, its KV cache or maximum length is smaller than at the first start, or it has
//     loaded weights that were replaced meanwhile;
//   - it is stopped, or silent (rank_watch.h);
//   - a step takes longer than StepDeadline allows.
// A lost group restarts after 0.1 s. While groups are lost before they have computed a step, that
// pause doubles, up to 30 s.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "parallel/comm/control/control_rendezvous.h"
#include "serving/distributed/rank_loop.h"
#include "serving/distributed/rank_processes.h"
#include "serving/distributed/rank_watch.h"
#include "serving/scheduler/scheduler_output.h"

namespace trireme {

// Message for requests that fail because a rank was lost. The log names the process and the cause.
inline constexpr const char* kRanksLost =
    "a rank of the model was lost; the server is ready again when all ranks have reloaded";

struct RankGroupConfig {
  int ranks = 1;
  RankLauncher launcher = RankLauncher::kLocal;
  std::vector<std::string> command;  // of each rank
  RankTask task = {};                // sent to each rank when it connects
  // TCP address of this machine for ranks on other machines. Empty: a Unix socket, or with
  // RankLauncher::kSrun the address of the host name.
  std::string address = {};
  GroupPosition position = {};                    // number among the groups (replicas)
  StepDeadline::Seconds min_step{30};             // StepDeadline's minimum
  std::chrono::milliseconds rendezvous{120'000};  // limit for all ranks to connect
};

struct RankGroupCounts {
  bool ready = false;
  int64_t starts = 0;  // of the whole group, restarts included
};

class RankSupervisor {
 public:
  // Receives the cause when ranks are lost, and an empty string when they are ready. Called on the
  // supervisor's thread; must not call listen().
  using Listener = std::function<void(const std::string& why)>;

  explicit RankSupervisor(RankGroupConfig config);
  ~RankSupervisor();  // ends the ranks; kills those still running after 5 s
  RankSupervisor(const RankSupervisor&) = delete;
  RankSupervisor& operator=(const RankSupervisor&) = delete;

  // Waits until the first start has succeeded; it is not retried. If it fails: Error with the exit
  // code of the rank that failed, or ReportedError if that rank has logged bad input. The message
  // names the replica if there are several.
  RankReady wait_until_ready();
  // Same, for at most `limit`; absent: the ranks are still starting.
  std::optional<RankReady> wait_until_ready(std::chrono::milliseconds limit);
  // Replaces the listener; the previous one is not called after this returns.
  void listen(Listener listener);
  // Error(kLostRank) with kRanksLost when a rank is lost during the step, or when the group has not
  // restarted since an earlier loss. Any other failure restarts the group and throws the same.
  StepOutput execute(const SchedulerOutput& plan);
  double plan_send_seconds() const { return plan_send_seconds_; }  // see StepExecutor
  RankGroupCounts counts() const;

  // See ModelWeights, also for the functions below. One call at a time, forget_adapter() excepted.
  // stage(): InputError with the message of the first rank that refuses, Error(kLostRank) when the
  // ranks are lost before or during the call.
  void stage(const StageRequest& request);
  // Sets the path that ranks started from now on load. Ranks that restarted since stage(), and have
  // loaded or are loading the previous path, are restarted, so that all replicas have the same
  // weights.
  void commit(const StageRequest& request);
  // After commit(). Error(kLostRank) when the ranks are lost before or during the call. No effect
  // if the group has restarted since stage(): it has loaded the new weights already.
  void use();
  void drop();  // Error(kLostRank) when it cannot be sent to all ranks
  void forget_adapter(int32_t slot);

 private:
  // Ranks of one start, until their end.
  struct Group {
    std::unique_ptr<RankProcesses> processes;
    std::vector<std::unique_ptr<ControlChannel>> channels;
    std::vector<int> pids;           // process ids of the ranks
    std::vector<uint64_t> computed;  // last step that each rank reports as computed
    bool on_this_machine = true;
    uint64_t task = 0;  // value of task_ when the task was sent to the ranks
    RankReady ready;    // as rank 0 reports it for all
    size_t loaded = 0;  // count of ranks that have loaded
  };
  // Progress of a weight change: the responses of a group's ranks.
  struct Change {
    std::shared_ptr<Group> group;
    uint64_t number = 0;
    size_t responses = 0;  // responses to the last request
    std::string refusal;   // the first one; empty: none
    bool staged = false;   // by all ranks
  };
  struct Step {
    uint64_t number = 0;  // 0: no step is running
    int64_t tokens = 0;
    std::chrono::steady_clock::time_point began;
  };

  std::shared_ptr<Group> begin_step(const SchedulerOutput& plan);
  std::vector<std::byte> wait_for_output(const Group& group);
  void ask_all(const Group& group, MessageKind kind, std::span<const std::byte> payload = {});
  std::string wait_for_responses(const std::shared_ptr<Group>& group);
  void loop();
  std::string run_group();  // returns the cause of its loss, or empty once stopped
  void accept_ranks(Group& group, ControlListener& listener);
  void watch(const std::shared_ptr<Group>& group);
  void take(Group& group, size_t rank, Message message);
  void say_ready(const std::shared_ptr<Group>& group);
  void say_lost(const std::string& why);
  void check_step(const Group& group) const;
  void let_end(Group& group);
  bool stopping() const;
  bool pause(std::chrono::milliseconds time);  // false: stopped meanwhile

  RankGroupConfig config_;
  const std::string name_;        // prefix of log lines; empty if there is only one group
  double plan_send_seconds_ = 0;  // engine's thread only
  std::mutex listening_;          // guards listener_, also during its call
  Listener listener_;

  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::shared_ptr<Group> group_;  // nullptr unless the ranks are ready
  // RankReady of the first start.
  std::optional<RankReady> first_;
  std::string why_ = "the ranks are being started";
  ExitCode failed_ = ExitCode::kDone;  // exit code of the first start, if it failed
  bool said_by_rank_ = false;          // first start: ranks ran, and have logged their own errors
  Step step_;
  Change change_;
  std::optional<std::vector<std::byte>> outcome_;
  StepDeadline deadline_;
  uint64_t task_ = 0;                  // number of changes of config_.task
  int64_t starts_ = 0, outcomes_ = 0;  // outcomes_: since the last start
  bool stop_ = false;
  std::thread thread_;
};

// Executor of a process that only leads ranks and computes nothing itself.
class RemoteExecutor final : public StepExecutor {
 public:
  explicit RemoteExecutor(RankSupervisor& ranks) : ranks_(ranks) {}
  StepOutput execute(const SchedulerOutput& plan) override { return ranks_.execute(plan); }
  double plan_send_seconds() const override { return ranks_.plan_send_seconds(); }

 private:
  RankSupervisor& ranks_;
};

}  // namespace trireme
