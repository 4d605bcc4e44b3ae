// Who is alive: the reason why every wait for a peer ends.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <vector>

#include "parallel/comm/shared_memory.h"
#include "parallel/comm/traffic.h"

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

// The ranks of one host write their process numbers and the first loss to a board in shared memory.
// A rank without a board (its peers are on other hosts) knows only what it finds out itself.
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

  // The first report wins; every rank of the host sees it.
  void report_lost(const std::string& reason);
  bool lost() const;
  std::string reason() const;
  void leave();  // this rank ends normally; it starts no further operation

  // Throws Error(kLostRank) when a rank is lost, when `awaited` (world rank, or -1) has died or has
  // left, or when `waited` seconds exceed the timeout. Cheap enough for every few milliseconds.
  void check(const OpInfo& op, int awaited, double waited);
  // What goes on while this rank waits inside an operation: posted messages move on. Returns after how
  // long to call it again; zero: no need.
  std::function<std::chrono::microseconds()> background;
  void throw_if_lost(const OpInfo& op) const;
  [[noreturn]] void fail(const OpInfo& op, const std::string& reason);

 private:
  struct Board;
  struct Row;
  Row* row(int index) const;
  bool process_ended(size_t index) const;

  double timeout_s_;
  SharedMemory memory_;
  Board* board_ = nullptr;
  std::vector<int> world_ranks_;
  std::vector<int> process_handles_;  // pidfd, or -1
  int own_row_ = 0;
  mutable std::mutex mutex_;           // guards own_reason_
  std::atomic<bool> own_lost_{false};  // without a board
  std::string own_reason_;
};

// Waiting without burning a core that the awaited rank may need: spins briefly, yields, then sleeps
// in short naps; looks at liveness every few milliseconds.
class Patience {
 public:
  Patience(Liveness& liveness, const OpInfo& op)
      : liveness_(liveness), op_(op), start_(std::chrono::steady_clock::now()), checked_(start_) {}
  void step(int awaited);   // one pause, longer as the wait goes on
  void check(int awaited);  // only the look at liveness, at most every few milliseconds
 private:
  Liveness& liveness_;
  const OpInfo& op_;
  std::chrono::steady_clock::time_point start_, checked_;
  int steps_ = 0;
};

}  // namespace trireme
