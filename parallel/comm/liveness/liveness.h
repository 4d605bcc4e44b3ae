// Who is alive: the reason why every wait for a peer ends.
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

// The operation a rank is in, for messages.
struct OpInfo {
  CommKind kind = CommKind::kControl;
  const std::string* group = nullptr;
  int rank = 0;  // in the group
  int size = 1;
  int64_t bytes = 0;
  bool goodbye = false;  // the last barrier of a run: a peer that has left is no loss
};
std::string text(const OpInfo& op);  // rank 1 of group "world" (4 ranks): all_reduce of 512 bytes

// How a loss came to be known.
enum class LossCause : uint32_t {
  kReported = 2,  // a rank failed and said so, or was waited for in vain
  kDied = 3,      // its process has ended
  kSilent = 4,    // it lives, but has not run for long
};

// A stopped process (SIGSTOP) is given up after the first; one that is not stopped but gets no
// processor, or hangs in the kernel, after the second. Both count only time in which the observer
// itself ran, so that ranks that were all stopped together, or slept with their machine, go on.
inline constexpr double kStoppedSeconds = 4;
inline constexpr double kHangsSeconds = 30;
// A longer time between two looks of a watchdog means that this process itself did not run.
inline constexpr double kMostCounted = 0.5;
// Ranks that were all sent SIGTERM end within this; one that ends alone is a loss.
inline constexpr double kTerminationGrace = 1.0;
// A longer time between two looks of a waiting thread means that this process was not running.
inline constexpr double kLongestStep = 1;

// The ranks of one host write their process numbers, a beat several times a second (Watchdog) and
// the first loss to a board in shared memory. A rank without a board (its peers are on other hosts)
// knows only what it finds out itself.
class Liveness {
 public:
  explicit Liveness(double timeout_s) : timeout_s_(timeout_s) {}
  ~Liveness();
  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;

  static int64_t board_bytes(int rows);
  // world_ranks: of the board's rows; this rank is row `own_row`. Every rank of the host must have
  // joined (a barrier) before watch() opens handles on their processes.
  void join(SharedMemory board, const std::vector<int>& world_ranks, int own_row);
  void watch();
  // who: every world rank in words, for messages: "rank 2 (process 4711 on node17)".
  void introduce(int world_rank, std::vector<std::string> who);
  const std::string& who(int world_rank) const { return who_[static_cast<size_t>(world_rank)]; }
  bool on_board(int world_rank) const;

  // The first report wins; every rank of the host sees it.
  void report_lost(const std::string& reason, LossCause cause = LossCause::kReported);
  bool lost() const;
  LossCause cause() const;  // once lost
  std::string reason() const;
  void leave();      // this rank ends normally; it starts no further operation
  void go();         // it has ended: its process may end, and beats no more
  void terminate();  // a SIGTERM ends it now

  // For the watchdog's message. enter(): the operation under way; one inside another does not
  // replace it. Returns the one before, to be given when this one ends. await(): the posted message
  // that the rank's own thread waits for; null: no longer. where(): the operation that a loss has
  // stopped, else what is awaited, else what is under way.
  const OpInfo* enter(const OpInfo* op);
  void await(const OpInfo* op);
  std::string where() const;

  // For the watchdog. beat(): this rank runs. look(): reports ranks of the host that died or did
  // not beat; `counted`: seconds since the last look, as far as this process was running.
  void beat();
  void look(double counted);
  std::vector<int> process_handles() const;  // readable once a process that should live has ended
  // A rank of the host is in a debugger: what waits for it is not waiting in vain.
  bool held() const { return held_.load(); }

  // Throws Error(kLostRank) when a rank is lost, when `awaited` (world rank, or -1) has died or has
  // left, or when `waited` seconds exceed the timeout. Cheap enough for every few milliseconds.
  void check(const OpInfo& op, int awaited, double waited);
  // What goes on while this rank waits inside an operation: posted messages move on. Returns after
  // how long to call it again; zero: no need.
  std::function<std::chrono::microseconds()> background;
  void throw_if_lost(const OpInfo& op);
  // Throws, with the reason others may give in the next moment, else with this one.
  [[noreturn]] void fail_after_grace(const OpInfo& op, const std::string& reason);
  [[noreturn]] void fail(const OpInfo& op, const std::string& reason,
                         LossCause cause = LossCause::kReported);

 private:
  struct Board;
  struct Row;
  struct Seen {  // of a row, by the watchdog
    uint32_t beats = 0;
    double silent = 0;  // counted seconds without a beat
  };
  Row* row(int index) const;
  bool process_ended(size_t index) const;
  std::string describe(const OpInfo& op) const;
  [[noreturn]] void stop(const OpInfo& op);  // throws the loss that is known
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
  mutable std::mutex mutex_;  // guards what follows
  const OpInfo* op_ = nullptr;
  const OpInfo* awaited_ = nullptr;
  std::string stopped_;                // the operation that ended by a loss, in words
  std::atomic<uint32_t> own_lost_{0};  // without a board
  std::string own_reason_;
};

// Waiting without burning a core that the awaited rank may need: spins briefly, yields, then sleeps
// in short naps; looks at liveness every few milliseconds. Time in which this process did not run,
// or in which a debugger held a peer, is not time waited.
class Patience {
 public:
  Patience(Liveness& liveness, const OpInfo& op)
      : liveness_(liveness), op_(op), checked_(std::chrono::steady_clock::now()) {}
  void step(int awaited);   // one pause, longer as the wait goes on
  void check(int awaited);  // only the look at liveness, at most every few milliseconds
 private:
  Liveness& liveness_;
  const OpInfo& op_;
  std::chrono::steady_clock::time_point checked_;
  double waited_ = 0;
  int steps_ = 0;
};

}  // namespace trireme
