#include "parallel/comm/collectives/node_window.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "parallel/comm/collectives/collectives.h"
#include "parallel/comm/collectives/stream_copy.h"

namespace trireme {
namespace {

// Up to this size every rank reduces everything itself: one wait instead of two.
constexpr int64_t kSmallBytes = 4096;
// Bytes reduced at a time: all inputs and the result stay in the first-level cache.
constexpr int64_t kReduceBytes = 4096;
constexpr int kSpins = 2000;

constexpr auto kNap = std::chrono::microseconds(25'000);  // then check liveness
// Nap while posted messages are in progress: short enough to keep them moving.
constexpr auto kShortNap = std::chrono::microseconds(500);

void futex_wait(const std::atomic<uint32_t>& word, uint32_t expected,
                std::chrono::microseconds most) {
  const timespec nap{0, most.count() * 1000};
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, &nap, nullptr, 0);
}

void futex_wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// True if `value` has reached `step`, for counters that wrap around.
bool reached(uint32_t value, uint32_t step) { return static_cast<int32_t>(value - step) >= 0; }

// Part of a rank's piece that passes in step p: `most` elements or the rest.
Piece part_of(const Piece& piece, int64_t p, int64_t most) {
  return {std::min(piece.end, piece.begin + p * most),
          std::min(piece.end, piece.begin + (p + 1) * most)};
}

}  // namespace

struct NodeWindow::Counter {
  alignas(64) std::atomic<uint32_t> value;
  mutable std::atomic<uint32_t> sleepers;
};

struct NodeWindow::Flags {
  Counter arrived;  // pieces that this rank has copied into its slot
  Counter reduced;  // pieces whose slice this rank has reduced
};

struct NodeWindow::Call {
  DType dtype;
  ReduceOp reduce;
  std::byte* data;
  int64_t n;
  int64_t width;
  int slices;
  const BetweenNodes& between_nodes;
  const OpInfo& op;
  Liveness& liveness;
  int64_t copied = 0;

  Piece slice(int64_t count, int rank) const {
    if (rank >= slices) return {count, count};
    return piece_of(count, slices, rank);
  }
};

int64_t NodeWindow::required_bytes(int ranks, int64_t slot_bytes) {
  const int64_t flags = round_up(ranks * static_cast<int64_t>(sizeof(Flags)), 4096);
  return checked_add(flags, checked_mul(checked_mul(2, ranks + 1), slot_bytes));
}

NodeWindow::NodeWindow(SharedMemory memory, std::vector<int> world_ranks, int self,
                       int64_t slot_bytes, bool spin)
    : memory_(std::move(memory)),
      world_ranks_(std::move(world_ranks)),
      self_(self),
      slot_bytes_(slot_bytes),
      spin_(spin),
      inputs_(world_ranks_.size()) {
  TRIREME_CHECK(slot_bytes > 0 && slot_bytes % 64 == 0, "window slots of ", slot_bytes,
                " bytes, expected a positive multiple of 64");
  TRIREME_CHECK(memory_.bytes() >= required_bytes(ranks(), slot_bytes), "a window of ",
                memory_.bytes(), " bytes, expected at least ", required_bytes(ranks(), slot_bytes));
}

NodeWindow::Flags& NodeWindow::flags(int rank) const {
  return reinterpret_cast<Flags*>(memory_.data())[rank];
}

std::byte* NodeWindow::slot(uint32_t step, int rank) const {
  const int64_t first = memory_.bytes() - 2 * (ranks() + 1) * slot_bytes_;
  const int64_t index = static_cast<int64_t>(step % 2) * (ranks() + 1) + rank;
  return memory_.data() + first + index * slot_bytes_;
}

void NodeWindow::announce(Counter& counter, uint32_t step) {
  counter.value.store(step);
  if (counter.sleepers.load() > 0) futex_wake_all(counter.value);
}

void NodeWindow::wait_for(const Counter& counter, uint32_t step, int rank, const Call& call) {
  for (int i = 0; i < (spin_ ? kSpins : 1); ++i) {
    if (reached(counter.value.load(), step)) return;
    pause_briefly();
  }
  Patience patience(call.liveness, call.op);
  for (uint32_t seen; !reached(seen = counter.value.load(), step);) {
    const auto again = call.liveness.background();
    counter.sleepers.fetch_add(1);
    futex_wait(counter.value, seen, again.count() > 0 ? std::clamp(again, kShortNap, kNap) : kNap);
    counter.sleepers.fetch_sub(1);
    patience.check(world_ranks_[static_cast<size_t>(rank)]);
  }
}

void NodeWindow::wait_all_arrived(uint32_t step, const Call& call) {
  for (int r = 0; r < ranks(); ++r)
    if (r != self_) wait_for(flags(r).arrived, step, r, call);
}

void NodeWindow::wait_all_reduced(uint32_t step, const Call& call) {
  for (int r = 0; r < call.slices; ++r)
    if (r != self_) wait_for(flags(r).reduced, step, r, call);
}

void NodeWindow::reduce_small(Call& call) {
  const uint32_t step = step_++;
  const int64_t bytes = call.n * call.width;
  std::memcpy(slot(step, self_), call.data, static_cast<size_t>(bytes));
  call.copied += bytes;
  announce(flags(self_).arrived, step + 1);
  wait_all_arrived(step + 1, call);
  for (int r = 0; r < ranks(); ++r) inputs_[static_cast<size_t>(r)] = slot(step, r);
  reduce_ranges(call.dtype, call.reduce, call.data, inputs_, call.n);
  // No rank waits for this; it keeps the counter in step with the pieces.
  announce(flags(self_).reduced, step + 1);
}

void NodeWindow::copy_in(Call& call, uint32_t step, int64_t begin, int64_t n) {
  const Piece own = call.slice(n, self_);
  const std::byte* from = call.data + begin * call.width;
  std::byte* to = slot(step, self_);
  const int64_t head = own.begin * call.width;
  const int64_t tail = own.end * call.width, end = n * call.width;
  stream_copy(to, from, head);
  stream_copy(to + tail, from + tail, end - tail);
  call.copied += head + end - tail;
  announce(flags(self_).arrived, step + 1);
}

void NodeWindow::reduce_slice(Call& call, uint32_t step, int64_t begin, int64_t n) {
  const Piece own = call.slice(n, self_);
  const int64_t at = own.begin * call.width;
  std::byte* data = call.data + begin * call.width + at;
  std::byte* result = slot(step, ranks()) + at;
  // Each block of the result is written to the caller's tensor and, while in cache, copied to the
  // result slot. With several nodes the slice is final only after it has passed their ring.
  const int64_t block = call.between_nodes ? own.size() : kReduceBytes / call.width;
  for (int64_t k = 0; k < own.size(); k += block) {
    const int64_t offset = k * call.width, count = std::min(block, own.size() - k);
    for (int r = 0; r < ranks(); ++r) inputs_[static_cast<size_t>(r)] = slot(step, r) + at + offset;
    inputs_[static_cast<size_t>(self_)] = data + offset;
    reduce_ranges(call.dtype, call.reduce, data + offset, inputs_, count);
    if (call.between_nodes) call.between_nodes(data + offset, count);
    stream_copy(result + offset, data + offset, count * call.width);
  }
  call.copied += own.size() * call.width;
  announce(flags(self_).reduced, step + 1);
}

// Copies the slices of the other ranks; the own slice is in place already.
void NodeWindow::copy_out(Call& call, uint32_t step, int64_t begin, int64_t n) {
  const Piece own = call.slice(n, self_);
  std::byte* to = call.data + begin * call.width;
  const std::byte* from = slot(step, ranks());
  const int64_t head = own.begin * call.width;
  const int64_t tail = own.end * call.width, end = n * call.width;
  std::memcpy(to, from, static_cast<size_t>(head));
  std::memcpy(to + tail, from + tail, static_cast<size_t>(end - tail));
}

int64_t NodeWindow::all_reduce(DType dtype, ReduceOp reduce, void* data, int64_t n, int slices,
                               const BetweenNodes& between_nodes, const OpInfo& op,
                               Liveness& liveness) {
  Call call{
      dtype, reduce,  static_cast<std::byte*>(data), n, dtype_size(dtype), slices, between_nodes,
      op,    liveness};
  if (n * call.width <= std::min(kSmallBytes, slot_bytes_) && !between_nodes) {
    reduce_small(call);
    return call.copied;
  }
  const int64_t most = slot_bytes_ / call.width;
  const int64_t pieces = ceil_div(n, most);
  const auto begin = [&](int64_t p) { return std::min(n, p * most); };
  const uint32_t first = step_;
  step_ += static_cast<uint32_t>(pieces);
  copy_in(call, first, 0, begin(1));
  for (int64_t p = 0; p < pieces; ++p) {
    const uint32_t step = first + static_cast<uint32_t>(p);
    // Also implies that every rank has finished the other buffer's previous piece.
    wait_all_arrived(step + 1, call);
    if (p + 1 < pieces) copy_in(call, step + 1, begin(p + 1), begin(p + 2) - begin(p + 1));
    const int64_t count = begin(p + 1) - begin(p);
    reduce_slice(call, step, begin(p), count);
    wait_all_reduced(step + 1, call);
    copy_out(call, step, begin(p), count);
  }
  return call.copied;
}

int64_t NodeWindow::part_elements(int64_t width) const {
  const int64_t bytes = slot_bytes_ / ranks();
  return (bytes >= 64 ? bytes / 64 * 64 : bytes) / width;  // parts start on cache lines
}

// copy(step, p) fills this rank's slot; work(step, p) reads the slots of all ranks.
template <class CopyIn, class Work>
void NodeWindow::run_parts(Call& call, int64_t steps, const CopyIn& copy, const Work& work) {
  const uint32_t first = step_;
  step_ += static_cast<uint32_t>(steps);
  const auto fill = [&](int64_t p) {
    const uint32_t step = first + static_cast<uint32_t>(p);
    copy(step, p);
    announce(flags(self_).arrived, step + 1);
  };
  fill(0);
  for (int64_t p = 0; p < steps; ++p) {
    const uint32_t step = first + static_cast<uint32_t>(p);
    wait_all_arrived(step + 1, call);
    // The other buffer is free once all ranks have finished the previous step: for the next part
    // or, after the last part, for the next operation.
    wait_all_reduced(step, call);
    if (p + 1 < steps) fill(p + 1);
    work(step, p);
    announce(flags(self_).reduced, step + 1);
  }
}

int64_t NodeWindow::reduce_scatter(DType dtype, ReduceOp reduce, void* data, int64_t n,
                                   const OpInfo& op, Liveness& liveness) {
  const BetweenNodes nothing;
  Call call{dtype, reduce,  static_cast<std::byte*>(data), n, dtype_size(dtype), ranks(), nothing,
            op,    liveness};
  const int64_t width = call.width, most = part_elements(width);
  const auto part = [&](int r, int64_t p) { return part_of(piece_of(n, ranks(), r), p, most); };
  const auto copy = [&](uint32_t step, int64_t p) {
    for (int r = 0; r < ranks(); ++r) {
      if (r == self_) continue;
      const Piece from = part(r, p);
      stream_copy(slot(step, self_) + r * most * width, call.data + from.begin * width,
                  from.size() * width);
      call.copied += from.size() * width;
    }
  };
  run_parts(call, ceil_div(ceil_div(n, ranks()), most), copy, [&](uint32_t step, int64_t p) {
    const Piece own = part(self_, p);
    const int64_t block = kReduceBytes / width;
    for (int64_t k = 0; k < own.size(); k += block) {
      const int64_t at = (self_ * most + k) * width;
      for (int r = 0; r < ranks(); ++r) inputs_[static_cast<size_t>(r)] = slot(step, r) + at;
      std::byte* result = call.data + (own.begin + k) * width;
      inputs_[static_cast<size_t>(self_)] = result;
      reduce_ranges(dtype, reduce, result, inputs_, std::min(block, own.size() - k));
    }
  });
  return call.copied;
}

int64_t NodeWindow::all_gather(int64_t width, void* data, int64_t n, const OpInfo& op,
                               Liveness& liveness) {
  const BetweenNodes nothing;
  Call call{DType::kI32, ReduceOp::kSum, static_cast<std::byte*>(data), n, width, ranks(), nothing,
            op,          liveness};
  const int64_t most = slot_bytes_ / width;
  const auto part = [&](int r, int64_t p) { return part_of(piece_of(n, ranks(), r), p, most); };
  const auto copy = [&](uint32_t step, int64_t p) {
    const Piece own = part(self_, p);
    stream_copy(slot(step, self_), call.data + own.begin * width, own.size() * width);
    call.copied += own.size() * width;
  };
  run_parts(call, ceil_div(ceil_div(n, ranks()), most), copy, [&](uint32_t step, int64_t p) {
    for (int r = 0; r < ranks(); ++r) {
      if (r == self_) continue;
      const Piece to = part(r, p);
      std::memcpy(call.data + to.begin * width, slot(step, r),
                  static_cast<size_t>(to.size() * width));
    }
  });
  return call.copied;
}

}  // namespace trireme
