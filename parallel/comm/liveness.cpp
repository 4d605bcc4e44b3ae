#include "parallel/comm/liveness.h"

#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <thread>

namespace trireme {
namespace {

using std::chrono::steady_clock;

constexpr auto kCheckInterval = std::chrono::milliseconds(20);
// A peer that has left may still have bytes under way to us; after this long it has not.
constexpr double kLeftGrace = 2.0;
constexpr size_t kReasonBytes = 512;

enum : uint32_t { kNobody = 0, kRunning = 1, kLeft = 2 };
enum : uint32_t { kAllWell = 0, kWriting = 1, kLost = 2 };

double seconds_since(steady_clock::time_point start) {
  return std::chrono::duration<double>(steady_clock::now() - start).count();
}

}  // namespace

struct Liveness::Row {
  alignas(64) std::atomic<int32_t> pid;
  std::atomic<uint32_t> state;
};

struct Liveness::Board {
  alignas(64) std::atomic<uint32_t> lost;
  char reason[kReasonBytes];  // valid once lost == kLost
};

std::string text(const OpInfo& op) {
  return concat("rank ", op.rank, " of group \"", op.group == nullptr ? "world" : *op.group, "\" (",
                op.size, " ranks): ", comm_kind_name(op.kind), " of ", op.bytes, " bytes");
}

Liveness::~Liveness() {
  for (int handle : process_handles_)
    if (handle >= 0) close(handle);
}

int64_t Liveness::board_bytes(int rows) {
  return static_cast<int64_t>(sizeof(Board)) + int64_t{rows} * static_cast<int64_t>(sizeof(Row));
}

Liveness::Row* Liveness::row(int index) const {
  return reinterpret_cast<Row*>(memory_.data() + sizeof(Board)) + index;
}

void Liveness::join(SharedMemory board, const std::vector<int>& world_ranks, int own_row) {
  const int rows = static_cast<int>(world_ranks.size());
  TRIREME_CHECK(board.bytes() >= board_bytes(rows), "board of ", board.bytes(), " bytes for ", rows,
                " ranks");
  memory_ = std::move(board);
  board_ = reinterpret_cast<Board*>(memory_.data());
  world_ranks_ = world_ranks;
  own_row_ = own_row;
  row(own_row)->pid.store(getpid());
  row(own_row)->state.store(kRunning);
}

void Liveness::watch() {
  for (size_t i = 0; i < world_ranks_.size(); ++i) {
    const int pid = row(static_cast<int>(i))->pid.load();
    // A handle, unlike a number, cannot come to mean another process, and it also tells of a
    // process that has ended but was not yet collected by its parent.
    const bool other = pid != getpid();
    process_handles_.push_back(other ? static_cast<int>(syscall(SYS_pidfd_open, pid, 0)) : -1);
  }
}

void Liveness::report_lost(const std::string& reason) {
  if (board_ == nullptr) {
    const std::lock_guard lock(mutex_);
    if (!own_lost_.load()) own_reason_ = reason;
    own_lost_.store(true);
    return;
  }
  uint32_t well = kAllWell;
  if (!board_->lost.compare_exchange_strong(well, kWriting)) return;
  const size_t length = std::min(reason.size(), kReasonBytes - 1);
  std::memcpy(board_->reason, reason.data(), length);
  board_->reason[length] = '\0';
  board_->lost.store(kLost);
}

bool Liveness::lost() const {
  return board_ == nullptr ? own_lost_.load() : board_->lost.load() != kAllWell;
}

std::string Liveness::reason() const {
  if (board_ == nullptr) {
    const std::lock_guard lock(mutex_);
    return own_reason_;
  }
  return board_->lost.load() == kLost ? board_->reason : "a rank was lost";
}

void Liveness::leave() {
  if (board_ != nullptr) row(own_row_)->state.store(kLeft);
}

bool Liveness::process_ended(size_t index) const {
  const int pid = row(static_cast<int>(index))->pid.load();
  if (pid == 0 || pid == getpid() || index >= process_handles_.size()) return false;
  pollfd handle{process_handles_[index], POLLIN, 0};
  if (handle.fd >= 0) return poll(&handle, 1, 0) == 1;
  return kill(pid, 0) != 0 && errno == ESRCH;
}

void Liveness::fail(const OpInfo& op, const std::string& reason) {
  report_lost(reason);
  throw Error(concat(op, " stopped: ", reason), ExitCode::kLostRank);
}

void Liveness::throw_if_lost(const OpInfo& op) const {
  if (lost()) throw Error(concat(op, " stopped: ", reason()), ExitCode::kLostRank);
}

void Liveness::check(const OpInfo& op, int awaited, double waited) {
  throw_if_lost(op);
  if (board_ != nullptr) {
    for (size_t i = 0; i < world_ranks_.size(); ++i) {
      const Row& r = *row(static_cast<int>(i));
      const bool left = r.state.load() == kLeft;
      if (left && !op.goodbye && world_ranks_[i] == awaited && waited > kLeftGrace)
        fail(op, concat("rank ", awaited, " has ended its run"));
      if (!left && process_ended(i))
        fail(op, concat("rank ", world_ranks_[i], " (process ", r.pid.load(), ") died"));
    }
  }
  if (waited > timeout_s_) {
    const std::string who = awaited < 0 ? "its peers" : concat("rank ", awaited);
    fail(op, concat("waited ", static_cast<int64_t>(waited), " s for ", who, " (comm.timeout)"));
  }
}

void Patience::check(int awaited) {
  const auto now = steady_clock::now();
  if (now - checked_ < kCheckInterval) return;
  checked_ = now;
  liveness_.check(op_, awaited, seconds_since(start_));
}

void Patience::step(int awaited) {
  constexpr int kSpins = 64, kYields = 400;
  ++steps_;
  if (steps_ < kSpins) return;
  if (steps_ < kYields) {
    sched_yield();
    return;
  }
  if (steps_ > kYields + 20)
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  else
    sched_yield();
  check(awaited);
}

}  // namespace trireme
