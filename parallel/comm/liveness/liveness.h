// Liveness of ranks: detects lost ranks, so that every wait for a peer ends.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "parallel/comm/liveness/shared_memory.h"
#include "parallel/comm/liveness/traffic.h"

namespace trireme {

// Operation that a rank is executing, for messages.
struct OpInfo {
  CommKind kind = CommKind::kControl;
  const std::string* group = nullptr;
  int rank = 0;  // in the group
  int size = 1;
  int64_t bytes = 0;
  bool goodbye = false;  // last barrier of a run: a peer that has left is not a loss
};
std::string text(const OpInfo& op);  // rank 1 of group "world" (4 ranks): all_reduce of 512 bytes

// Way in which a loss was detected.
enum class LossCause : uint32_t {
  kReported = 2,  // a rank reported its failure, or a wait for it timed out
  kDied = 3,      // its process has ended
  kSilent = 4,    // it lives, but has not run for some time
};

// Silence after which a process counts as lost: the first limit for a stopped process (SIGSTOP),
// the second for one that is not stopped but gets no processor or hangs in the kernel. Both count
// only time in which the observer itself ran, so that ranks that were all stopped together, or
// slept with their machine, continue.
inline constexpr double kStoppedSeconds = 4;
inline constexpr double kHangsSeconds = 30;
// A longer time between two checks of a watchdog means that this process itself did not run.
inline constexpr double kMaxCounted = 0.5;
// Ranks that were all sent SIGTERM end within this time; one that ends alone is a loss.
inline constexpr double kTerminationGrace = 1.0;
// A longer time between two checks of a waiting thread means that this process was not running.
inline constexpr double kLongestStep = 1;

// Liveness of the ranks of one host. They write their process ids, several heartbeats a second
// (Watchdog) and the first loss to a board in shared memory. A rank without a board (its peers are
// on other hosts) knows only of losses that it detects itself.
class Liveness {
 public:
  explicit Liveness(double timeout_s) : timeout_s_(timeout_s) {}
  ~Liveness();
  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;

  static int64_t board_bytes(int rows);
  // world_ranks: ranks of the board's rows; this rank has row `own_row`. Every rank of the host
  // must have joined (a barrier) before watch(), which opens handles on their processes.
  void join(SharedMemory board, const std::vector<int>& world_ranks, int own_row);
  void watch();
  // who: description of every world rank, for messages: "rank 2 (process 4711 on node17)".
  void introduce(int world_rank, std::vector<std::string> who);
  const std::string& who(int world_rank) const { return who_[static_cast<size_t>(world_rank)]; }
  bool on_board(int world_rank) const;

  // The first report wins; every rank of the host sees it.
  void report_lost(const std::string& reason, LossCause cause = LossCause::kReported);
  bool lost() const;
  LossCause cause() const;  // once lost
  std::string reason() const;
  void leave();       // this rank ends normally; it starts no further operation
  void mark_ended();  // this rank has ended: its process may exit, and sends no more heartbeats
  void terminate();   // a SIGTERM ends this rank now

  // For the watchdog's message. enter(): sets the operation in progress, unless it is nested in
  // another; returns the previous one, to be restored at its end. await(): sets the posted message
  // for which the rank's own thread waits; null: none. where(): description of the operation that a
  // loss has stopped, else of the awaited message, else of the operation in progress.
  const OpInfo* enter(const OpInfo* op);
  void await(const OpInfo* op);
  std::string where() const;

  // For the watchdog. beat(): records a heartbeat of this rank. look(): reports ranks of the host
  // that died or are silent; counted: seconds since the last call during which this process ran.
  void beat();
  void look(double counted);
  // pidfds of the host's ranks that should still be running; readable once the process has ended.
  std::vector<int> process_handles() const;
  // True while a debugger traces a silent rank of the host: waiting then does not time out.
  bool held() const { return held_.load(); }

  // Throws Error(kLostRank) if a rank is lost, if a rank of the board has died, if `awaited` (world
  // rank of the board; -1: none) has left and `waited` is above two seconds, or if `waited` seconds
  // exceed the timeout. Cheap enough to call every few milliseconds.
  void check(const OpInfo& op, int awaited, double waited);
  // Called while this rank waits inside an operation: progresses posted messages. Returns the delay
  // until the next call; zero: no call needed.
  std::function<std::chrono::microseconds()> background;
  void throw_if_lost(const OpInfo& op);
  // Waits up to 1.5 seconds for another rank's report and throws with its reason; without one,
  // fails with `reason`.
  [[noreturn]] void fail_after_grace(const OpInfo& op, const std::string& reason);
  // Reports a loss, then throws Error(kLostRank) with the reason of the first report.
  [[noreturn]] void fail(const OpInfo& op, const std::string& reason,
                         LossCause cause = LossCause::kReported);

 private:
  struct Board;
  struct Row;
  struct Seen {  // state of a row, for the watchdog
    uint32_t beats = 0;
    double silent = 0;  // counted seconds without a beat
  };
  Row* row(int index) const;
  bool process_ended(size_t index) const;
  std::string describe(const OpInfo& op) const;
  [[noreturn]] void stop(const OpInfo& op);  // throws the known loss
  void look_at_silent(size_t index, Seen& seen, bool& held);

  double timeout_s_;
  SharedMemory memory_;
  Board* board_ = nullptr;
  std::vector<int> world_ranks_;
  std::vector<int> process_handles_;  // pidfd, or -1
  int own_row_ = 0;
  int world_rank_ = 0;
  std::vector<std::string> who_;
  std::vector<Seen> seen_;
  std::atomic<bool> held_{false};
  mutable std::mutex mutex_;  // guards the members below
  const OpInfo* op_ = nullptr;
  const OpInfo* awaited_ = nullptr;
  std::string stopped_;                // description of the operation that a loss has stopped
  std::atomic<uint32_t> own_lost_{0};  // without a board
  std::string own_reason_;
};

// Wait loop that leaves the core to the awaited rank: spins briefly, yields, then sleeps in short
// naps; checks liveness every 20 milliseconds. awaited: as in Liveness::check(). Time in which this
// process did not run, or in which a debugger held a peer, does not count as waited.
class Patience {
 public:
  Patience(Liveness& liveness, const OpInfo& op)
      : liveness_(liveness), op_(op), checked_(std::chrono::steady_clock::now()) {}
  void step(int awaited);   // one pause; pauses get longer
  void check(int awaited);  // only the liveness check, at most every 20 milliseconds
 private:
  Liveness& liveness_;
  const OpInfo& op_;
  std::chrono::steady_clock::time_point checked_;
  double waited_ = 0;
  int steps_ = 0;
};

}  // namespace trireme
