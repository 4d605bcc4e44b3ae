#include "parallel/comm/liveness/liveness.h"

#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>
#include <thread>

#include "parallel/comm/liveness/process_state.h"

namespace trireme {
namespace {

using std::chrono::steady_clock;

constexpr auto kCheckInterval = std::chrono::milliseconds(20);
// Bytes of a peer that has left may still be in transit; after this long they are not.
constexpr double kLeftGrace = 2.0;
constexpr size_t kReasonBytes = 512;
// Silence after which the state of a process is examined.
constexpr double kSuspicious = 1.0;

enum : uint32_t { kNobody = 0, kRunning = 1, kLeft = 2, kGone = 3, kTerminated = 4 };
// Further values of the board's `lost` are those of LossCause.
enum : uint32_t { kAllWell = 0, kWriting = 1 };

double tenths(double seconds) { return std::round(seconds * 10) / 10; }

}  // namespace

struct Liveness::Row {
  alignas(64) std::atomic<int32_t> pid;
  std::atomic<uint32_t> state;
  std::atomic<uint32_t> beats;
};

struct Liveness::Board {
  alignas(64) std::atomic<uint32_t> lost;
  char reason[kReasonBytes];  // valid once lost holds a cause
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
  TRIREME_CHECK(board.bytes() >= board_bytes(rows), "a board of ", board.bytes(),
                " bytes, expected at least ", board_bytes(rows), " for ", rows, " ranks");
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
    // Unlike a process id, a handle cannot be reused for another process, and it also reports a
    // process that has ended but was not reaped by its parent yet.
    const bool other = pid != getpid();
    process_handles_.push_back(other ? static_cast<int>(syscall(SYS_pidfd_open, pid, 0)) : -1);
  }
  seen_.resize(world_ranks_.size());
}

void Liveness::introduce(int world_rank, std::vector<std::string> who) {
  world_rank_ = world_rank;
  who_ = std::move(who);
}

bool Liveness::on_board(int world_rank) const {
  return std::ranges::find(world_ranks_, world_rank) != world_ranks_.end();
}

void Liveness::report_lost(const std::string& reason, LossCause cause) {
  if (board_ == nullptr) {
    const std::lock_guard lock(mutex_);
    if (own_lost_.load() != kAllWell) return;
    own_reason_ = reason;
    own_lost_.store(static_cast<uint32_t>(cause));
    return;
  }
  uint32_t well = kAllWell;
  if (!board_->lost.compare_exchange_strong(well, kWriting)) return;
  const size_t length = std::min(reason.size(), kReasonBytes - 1);
  std::memcpy(board_->reason, reason.data(), length);
  board_->reason[length] = '\0';
  board_->lost.store(static_cast<uint32_t>(cause));
}

bool Liveness::lost() const {
  return (board_ == nullptr ? own_lost_ : board_->lost).load() != kAllWell;
}

LossCause Liveness::cause() const {
  const uint32_t value = (board_ == nullptr ? own_lost_ : board_->lost).load();
  return value <= kWriting ? LossCause::kReported : static_cast<LossCause>(value);
}

std::string Liveness::reason() const {
  if (board_ == nullptr) {
    const std::lock_guard lock(mutex_);
    return own_reason_;
  }
  // The writer is nearly done, unless it dies at this very moment.
  for (int k = 0; k < 100 && board_->lost.load() == kWriting; ++k)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return board_->lost.load() > kWriting ? board_->reason : "a rank was lost";
}

void Liveness::leave() {
  if (board_ != nullptr) row(own_row_)->state.store(kLeft);
}

void Liveness::mark_ended() {
  if (board_ != nullptr) row(own_row_)->state.store(kGone);
}

void Liveness::terminate() {
  if (board_ != nullptr) row(own_row_)->state.store(kTerminated);
}

const OpInfo* Liveness::enter(const OpInfo* op) {
  const std::lock_guard lock(mutex_);
  const OpInfo* before = op_;
  if (before == nullptr || op == nullptr) op_ = op;
  return before;
}

void Liveness::await(const OpInfo* op) {
  const std::lock_guard lock(mutex_);
  awaited_ = op;
}

std::string Liveness::where() const {
  const std::lock_guard lock(mutex_);
  if (!stopped_.empty()) return stopped_;
  const OpInfo* op = awaited_ != nullptr ? awaited_ : op_;
  if (op != nullptr) return describe(*op);
  return concat("rank ", world_rank_, " of ", who_.size(), ", between two operations,");
}

std::string Liveness::describe(const OpInfo& op) const {
  // In the world group, and before the ranks know each other, text(op) has the rank already.
  const bool in_world = static_cast<size_t>(op.size) == who_.size() && op.rank == world_rank_;
  if (in_world || who_.empty()) return text(op);
  return concat("rank ", world_rank_, " of ", who_.size(), ", ", op);
}

void Liveness::beat() {
  if (board_ != nullptr) row(own_row_)->beats.fetch_add(1);
}

std::vector<int> Liveness::process_handles() const {
  std::vector<int> handles;
  for (size_t i = 0; i < process_handles_.size(); ++i) {
    const uint32_t state = row(static_cast<int>(i))->state.load();
    if (process_handles_[i] >= 0 && state != kGone && state != kTerminated)
      handles.push_back(process_handles_[i]);
  }
  return handles;
}

void Liveness::look(double counted) {
  bool held = false;
  for (size_t i = 0; i < seen_.size() && !lost(); ++i) {
    const Row& r = *row(static_cast<int>(i));
    const uint32_t state = r.state.load();
    if (static_cast<int>(i) == own_row_ || state == kNobody || state == kGone) continue;
    const std::string& name = who(world_ranks_[i]);
    Seen& seen = seen_[i];
    const uint32_t beats = r.beats.load();
    seen.silent = beats == std::exchange(seen.beats, beats) ? seen.silent + counted : 0;
    if (state == kTerminated) {
      if (seen.silent > kTerminationGrace)
        report_lost(concat(name, " was ended by SIGTERM"), LossCause::kDied);
    } else if (process_ended(i)) {
      // Loads the state again: the rank may just have ended its run, and then its process.
      const uint32_t last = r.state.load();
      if (last == kRunning || last == kLeft) report_lost(concat(name, " died"), LossCause::kDied);
    } else if (seen.silent > kSuspicious) {
      look_at_silent(i, seen, held);
    }
  }
  held_.store(held);
}

void Liveness::look_at_silent(size_t index, Seen& seen, bool& held) {
  const ProcessState state = process_state(row(static_cast<int>(index))->pid.load());
  // Its handle becomes readable only after its memory has been dumped or freed.
  if (state.dumping || state.letter == 'Z' || state.letter == 'X')
    return report_lost(
        concat(who(world_ranks_[index]), " died", state.dumping ? ": it crashed" : ""),
        LossCause::kDied);
  if (state.traced) {
    held = true;
    seen.silent = kSuspicious + 0.1;  // counts from here once the debugger lets it run
    return;
  }
  const bool stopped = state.letter == 'T';
  if (seen.silent < (stopped ? kStoppedSeconds : kHangsSeconds)) return;
  report_lost(concat(who(world_ranks_[index]), " has not run for ", tenths(seen.silent), " s: ",
                     stopped ? "it was stopped by a signal"
                             : concat("it gets no processor or hangs in the kernel (state ",
                                      state.letter, ")")),
              LossCause::kSilent);
}

bool Liveness::process_ended(size_t index) const {
  const int pid = row(static_cast<int>(index))->pid.load();
  if (pid == 0 || pid == getpid() || index >= process_handles_.size()) return false;
  pollfd handle{process_handles_[index], POLLIN, 0};
  if (handle.fd >= 0) return poll(&handle, 1, 0) == 1;
  return kill(pid, 0) != 0 && errno == ESRCH;
}

void Liveness::fail(const OpInfo& op, const std::string& reason, LossCause cause) {
  report_lost(reason, cause);
  stop(op);  // another rank may have reported first; one loss has one reason
}

void Liveness::stop(const OpInfo& op) {
  {
    // The thread leaves its wait now; the watchdog may print the message later.
    const std::lock_guard lock(mutex_);
    const OpInfo* waits = awaited_ != nullptr ? awaited_ : op_;
    if (stopped_.empty()) stopped_ = describe(waits != nullptr ? *waits : op);
  }
  throw Error(concat(describe(op), " stopped: ", reason()), ExitCode::kLostRank);
}

void Liveness::fail_after_grace(const OpInfo& op, const std::string& reason) {
  // Longer than the slowest way in which a watchdog detects an end, measured in counted time, as
  // watchdogs measure it.
  double counted = 0;
  for (auto last = steady_clock::now(); counted < kTerminationGrace + 0.5;) {
    check(op, -1, 0);
    std::this_thread::sleep_for(kCheckInterval);
    const auto now = steady_clock::now();
    const std::chrono::duration<double> step = now - std::exchange(last, now);
    counted += std::min(step.count(), kMaxCounted);
  }
  fail(op, reason);
}

void Liveness::throw_if_lost(const OpInfo& op) {
  if (lost()) stop(op);
}

void Liveness::check(const OpInfo& op, int awaited, double waited) {
  throw_if_lost(op);
  if (board_ != nullptr) {
    for (size_t i = 0; i < world_ranks_.size(); ++i) {
      const uint32_t state = row(static_cast<int>(i))->state.load();
      const bool left = state == kLeft || state == kGone;
      if (left && !op.goodbye && world_ranks_[i] == awaited && waited > kLeftGrace)
        fail(op, concat("rank ", awaited, " has ended its run"));
      if (process_ended(i) && row(static_cast<int>(i))->state.load() == kRunning)
        fail(op, concat(who(world_ranks_[i]), " died"), LossCause::kDied);
    }
  }
  if (waited > timeout_s_) {
    const std::string whom = awaited < 0 ? "its peers" : concat("rank ", awaited);
    fail(op, concat("waited ", static_cast<int64_t>(waited), " s for ", whom, " (comm.timeout)"));
  }
}

void Patience::check(int awaited) {
  const auto now = steady_clock::now();
  if (now - checked_ < kCheckInterval) return;
  const std::chrono::duration<double> step = now - std::exchange(checked_, now);
  if (!liveness_.held()) waited_ += std::min(step.count(), kLongestStep);
  liveness_.check(op_, awaited, waited_);
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
