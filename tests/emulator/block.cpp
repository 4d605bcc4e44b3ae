// Scheduler of one block's fibers. The ThreadSanitizer build compiles this file without
// instrumentation (tests/emulator/CMakeLists.txt), so that its own bookkeeping is not reported as a
// race. Therefore it uses plain arrays, and no templates whose code an instrumented file could
// supply.
#include "tests/emulator/block.h"

#include <sys/mman.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "tests/emulator/emulator.h"
#include "tests/emulator/fiber.h"
#include "tests/emulator/kernel_language.h"
#include "tests/emulator/memory.h"
#include "tests/emulator/report.h"

#if TRIREME_EMULATOR_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace emulator::detail {

constinit thread_local ThreadPosition thread_position;

namespace {

constexpr int kMaxThreads = 1024, kLanes = 32, kMaxWarps = kMaxThreads / kLanes;
constexpr std::uint32_t kAllLanes = 0xffffffffu;

// For ThreadSanitizer, barriers, and only they, order the threads of a block.
void release([[maybe_unused]] void* tag) {
#if TRIREME_EMULATOR_TSAN
  __tsan_release(tag);
#endif
}
void acquire([[maybe_unused]] void* tag) {
#if TRIREME_EMULATOR_TSAN
  __tsan_acquire(tag);
#endif
}

// A thread gets a fiber when it starts. A thread that ends without waiting passes its fiber to the
// next one, so that a kernel without barriers costs calls, not switches. ThreadSanitizer regards
// the fiber as the thread: there each thread keeps its own.
#if TRIREME_EMULATOR_TSAN
constexpr bool kOwnFibers = true;
#else
constexpr bool kOwnFibers = false;
#endif

struct Thread {
  Fiber* fiber = nullptr;
  uint3 index{};
  int number = 0;  // in the block
  bool finished = true;
  Collective waits = Collective::kNone;
};

// A collective uses the slots and the tag of its parity, so that a lane that has continued to the
// next one does not disturb a lane that has not read yet.
struct Warp {
  std::uint32_t ready = 0, arrived = 0;
  Collective what = Collective::kNone;
  unsigned parity = 0;
  std::uint64_t slots[2][kLanes];
  char tags[2];
};

// State of one OS thread that runs blocks; kept between kernels.
struct Runner {
  Thread threads[kMaxThreads];
  Warp warps[kMaxWarps];
  Fiber scheduler;
  Fiber fibers[kMaxThreads];
  int created = 0;           // number of fibers
  Fiber* idle[kMaxThreads];  // fibers without a thread
  int idle_count = 0;
  int count = 0, warp_count = 0, finished = 0;
  Thread* running = nullptr;
  // __syncthreads
  int arrived = 0, votes = 0, result[2] = {0, 0};
  unsigned parity = 0;
  char tags[2] = {0, 0}, start_tag = 0, end_tag = 0, fence_tag = 0;
  const GridShape* shape = nullptr;
  const std::function<void()>* body = nullptr;
  void* shared = nullptr;
  std::size_t shared_capacity = 0;
  void* signal_stack = nullptr;

  Runner() {
    handle_faults();
    // A handler cannot run on a stack that has overflowed.
    stack_t before{};
    sigaltstack(nullptr, &before);
    if (!(before.ss_flags & SS_DISABLE)) return;
    constexpr std::size_t kBytes = 64 << 10;
    signal_stack = std::malloc(kBytes);
    const stack_t ours{.ss_sp = signal_stack, .ss_flags = 0, .ss_size = kBytes};
    sigaltstack(&ours, nullptr);
  }
  ~Runner() {
    if (signal_stack) {
      const stack_t none{.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
      sigaltstack(&none, nullptr);
      std::free(signal_stack);
    }
    for (int i = 0; i < created; ++i) destroy_fiber(fibers[i]);
    std::free(shared);
  }
};
constinit thread_local Runner* runner = nullptr;
// Frees the runner when its OS thread ends.
struct Owner {
  Runner* owned = nullptr;
  ~Owner() {
    delete owned;
    runner = nullptr;
  }
};
thread_local Owner owner;

const char* name_of(Collective what) {
  switch (what) {
    case Collective::kNone: return "nothing";
    case Collective::kSyncThreads: return "__syncthreads";
    case Collective::kSyncWarp: return "__syncwarp";
    case Collective::kShuffle: return "__shfl_sync";
    case Collective::kShuffleXor: return "__shfl_xor_sync";
    case Collective::kShuffleUp: return "__shfl_up_sync";
    case Collective::kShuffleDown: return "__shfl_down_sync";
    case Collective::kVote: return "a warp vote";
    case Collective::kReduce: return "a warp reduction";
  }
  return "?";
}

struct Text {
  char text[200];
};
Text where(const Thread& thread) {
  Text out;
  const uint3 b = thread_position.block, t = thread.index;
  std::snprintf(out.text, sizeof(out.text), "kernel %s, block (%u,%u,%u), thread (%u,%u,%u)",
                runner->shape->name, b.x, b.y, b.z, t.x, t.y, t.z);
  return out;
}

Runner& in_kernel(const char* what) {
  if (!runner || !runner->running) die("%s was called outside of a kernel", what);
  return *runner;
}

void make_ready(Runner& r, int warp, std::uint32_t lanes) { r.warps[warp].ready |= lanes; }

// Another runnable thread, of the same warp if possible; nullptr: none.
Thread* next_ready(Runner& r, int warp) {
  for (int i = 0; i < r.warp_count; ++i) {
    const int step = r.shape->backward ? r.warp_count - i : i;
    const int w = (warp + step) % r.warp_count;
    const std::uint32_t ready = r.warps[w].ready;
    if (!ready) continue;
    const int lane_number = r.shape->backward ? 31 - __builtin_clz(ready) : __builtin_ctz(ready);
    r.warps[w].ready &= ~(1u << lane_number);
    return &r.threads[w * kLanes + lane_number];
  }
  return nullptr;
}

void thread_main();

Fiber& fiber_of(Runner& r, Thread& thread) {
  if (thread.fiber) return *thread.fiber;
  if (r.idle_count) {
    thread.fiber = r.idle[--r.idle_count];
  } else {
    thread.fiber = &r.fibers[r.created++];
    create_fiber(*thread.fiber, thread_main);
  }
  return *thread.fiber;
}

// Makes the next thread the running one; nullptr: the scheduler.
Thread* choose_next(Runner& r, int warp) {
  Thread* next = next_ready(r, warp);
  r.running = next;
  thread_position.thread = next ? &next->index : nullptr;
  return next;
}

void run_next(Runner& r, Fiber& from, int warp) {
  Thread* next = choose_next(r, warp);
  switch_fiber(from, next ? fiber_of(r, *next) : r.scheduler);
}

// Suspends the running thread until another one makes it ready.
void wait(Runner& r, Collective what) {
  Thread& self = *r.running;
  self.waits = what;
  run_next(r, *self.fiber, self.number / kLanes);
  self.waits = Collective::kNone;
}

void run_body(Runner& r) {
  try {
    (*r.body)();
  } catch (const std::exception& error) {
    die("%s threw: %s", where(*r.running).text, error.what());
  }
}

// Returns on the same fiber when it has another thread to run.
void leave(Runner& r, Thread& self) {
  self.finished = true;
  ++r.finished;
  Fiber& mine = *self.fiber;
  Thread* next = choose_next(r, self.number / kLanes);
  if (!kOwnFibers) {
    self.fiber = nullptr;
    if (next && !next->fiber) {
      next->fiber = &mine;
      return;
    }
    r.idle[r.idle_count++] = &mine;
  }
  switch_fiber(mine, next ? fiber_of(r, *next) : r.scheduler);
}

void thread_main() {
  enter_fiber();
  Runner& r = *runner;
  for (;;) {
    Thread& self = *r.running;
    acquire(&r.start_tag);
    run_body(r);
    release(&r.end_tag);
    leave(r, self);
  }
}

// All unfinished threads wait for one another: reports what they wait for, by example.
[[noreturn]] void report_stuck(Runner& r) {
  // A thread that waits inside its warp is more informative than the many at a barrier.
  const Thread* waiting = nullptr;
  const Thread* other = nullptr;
  for (int i = 0; i < r.count; ++i) {
    const Thread& t = r.threads[i];
    if (t.finished) continue;
    const bool in_warp = t.waits != Collective::kSyncThreads;
    if (!waiting || (in_warp && waiting->waits == Collective::kSyncThreads)) waiting = &t;
  }
  for (int i = 0; i < r.count; ++i) {
    const Thread& t = r.threads[i];
    const bool same_warp = t.number / kLanes == waiting->number / kLanes;
    const bool relevant = waiting->waits == Collective::kSyncThreads || same_warp;
    if (relevant && !other && t.waits != waiting->waits) other = &t;
  }
  if (!other) die("%s waits at %s for ever", where(*waiting).text, name_of(waiting->waits));
  const uint3 t = other->index;
  die("%s waits at %s, which thread (%u,%u,%u) does not reach: it %s%s", where(*waiting).text,
      name_of(waiting->waits), t.x, t.y, t.z, other->finished ? "has returned" : "waits at ",
      other->finished ? "" : name_of(other->waits));
}

void run_block(Runner& r) {
  r.finished = 0;
  r.arrived = r.votes = 0;
  for (int w = 0; w < r.warp_count; ++w) {
    const int lanes = r.count - w * kLanes;
    r.warps[w].arrived = 0;
    r.warps[w].ready = lanes >= kLanes ? kAllLanes : (1u << lanes) - 1;
  }
  for (int i = 0; i < r.count; ++i) r.threads[i].finished = false;
  if (r.shape->shared_bytes) std::memset(r.shared, 0xff, r.shape->shared_bytes);
  release(&r.start_tag);
  run_next(r, r.scheduler, r.shape->backward ? r.warp_count - 1 : 0);
  acquire(&r.end_tag);
  if (r.finished != r.count) report_stuck(r);
}

void prepare(Runner& r, const GridShape& shape, const std::function<void()>& body) {
  const dim3 b = shape.block;
  r.shape = &shape;
  r.body = &body;
  r.count = static_cast<int>(b.x * b.y * b.z);
  r.warp_count = (r.count + kLanes - 1) / kLanes;
  adopt_thread(r.scheduler);
  for (int i = 0; i < r.count; ++i) {
    const auto n = static_cast<unsigned>(i);
    // A fiber is ordered after its creator, so that threads may not create them for each other
    // here.
    if (kOwnFibers) fiber_of(r, r.threads[i]);
    r.threads[i].index = {n % b.x, n / b.x % b.y, n / (b.x * b.y)};
    r.threads[i].number = i;
  }
  if (shape.shared_bytes > r.shared_capacity) {
    std::free(r.shared);
    r.shared_capacity = (shape.shared_bytes + 127) / 128 * 128;
    r.shared = std::aligned_alloc(128, r.shared_capacity);
  }
  thread_position.block_dim = b;
  thread_position.grid_dim = shape.grid;
}

}  // namespace

void run_grid(const GridShape& shape, const std::function<void()>& body) {
  if (!runner) runner = owner.owned = new Runner;
  Runner& r = *runner;
  prepare(r, shape, body);
  const std::uint64_t plane = std::uint64_t{shape.grid.x} * shape.grid.y;
  const std::uint64_t blocks = plane * shape.grid.z;
  for (std::uint64_t i = 0; i < blocks; ++i) {
    const std::uint64_t n = shape.backward ? blocks - 1 - i : i;
    thread_position.block = {static_cast<unsigned>(n % shape.grid.x),
                             static_cast<unsigned>(n / shape.grid.x % shape.grid.y),
                             static_cast<unsigned>(n / plane)};
    run_block(r);
  }
  r.shape = nullptr;
}

const char* running_kernel() { return runner && runner->shape ? runner->shape->name : nullptr; }

bool in_stack_guard(const void* address) {
  const char* a = static_cast<const char*>(address);
  for (int i = 0; runner && i < runner->created; ++i) {
    const char* guard = static_cast<const char*>(runner->fibers[i].mapping);
    if (a >= guard && a < guard + stack_guard_bytes()) return true;
  }
  return false;
}

int sync_threads_count(bool vote) {
  Runner& r = in_kernel("__syncthreads");
  const unsigned parity = r.parity;
  release(&r.tags[parity]);
  r.votes += vote;
  if (++r.arrived == r.count) {
    r.result[parity] = r.votes;
    r.arrived = r.votes = 0;
    r.parity ^= 1;
    const Thread& self = *r.running;
    for (int w = 0; w < r.warp_count; ++w) {
      const int lanes = r.count - w * kLanes;
      std::uint32_t all = lanes >= kLanes ? kAllLanes : (1u << lanes) - 1;
      if (w == self.number / kLanes) all &= ~(1u << (self.number % kLanes));
      make_ready(r, w, all);
    }
  } else {
    wait(r, Collective::kSyncThreads);
  }
  acquire(&r.tags[parity]);
  return r.result[parity];
}
void sync_threads() { sync_threads_count(false); }

int lane() { return in_kernel("a warp function").running->number % kLanes; }

const std::uint64_t* exchange(Collective what, unsigned mask, std::uint64_t value) {
  Runner& r = in_kernel(name_of(what));
  const Thread& self = *r.running;
  if (mask != kAllLanes)
    die("%s: %s with mask 0x%x; only whole warps (0xffffffff) are emulated", where(self).text,
        name_of(what), mask);
  if (self.number / kLanes * kLanes + kLanes > r.count)
    die("%s: %s in a warp of %d lanes; blocks must be a multiple of 32", where(self).text,
        name_of(what), r.count % kLanes);
  Warp& warp = r.warps[self.number / kLanes];
  const std::uint32_t bit = 1u << (self.number % kLanes);
  if (warp.arrived && warp.what != what)
    die("%s is at %s while other lanes of its warp are at %s", where(self).text, name_of(what),
        name_of(warp.what));
  const unsigned parity = warp.parity;
  warp.what = what;
  warp.slots[parity][self.number % kLanes] = value;
  warp.arrived |= bit;
  if (what == Collective::kSyncWarp) release(&warp.tags[parity]);
  if (warp.arrived == kAllLanes) {
    warp.arrived = 0;
    warp.parity ^= 1;
    make_ready(r, self.number / kLanes, kAllLanes & ~bit);
  } else {
    wait(r, what);
  }
  if (what == Collective::kSyncWarp) acquire(&warp.tags[parity]);
  return warp.slots[parity];
}
void sync_warp(unsigned mask) { exchange(Collective::kSyncWarp, mask, 0); }

void fence() {
  Runner& r = in_kernel("__threadfence");
  acquire(&r.fence_tag);
  release(&r.fence_tag);
}

void trap() { die("%s: __trap", where(*in_kernel("__trap").running).text); }

}  // namespace emulator::detail

namespace emulator {

void* dynamic_shared() {
  using namespace detail;
  Runner& r = in_kernel("dynamic shared memory");
  if (!r.shape->shared_bytes)
    die("%s uses dynamic shared memory, of which the launch gave none", where(*r.running).text);
  return r.shared;
}

}  // namespace emulator
