// CUDA's extensions of C++ for kernel sources: qualifiers, indices, barriers, warp collectives,
// atomics. Limits, each an error that names kernel, block and thread: warp collectives require all
// 32 lanes (mask 0xffffffff); __syncthreads requires all threads of the block.
#pragma once

#include <vector_types.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __managed__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) alignas(n)
// One block runs at a time on an OS thread, so that a thread's static is its block's shared memory.
// It keeps the content of the block before, as real shared memory may.
#define __shared__ static thread_local

namespace emulator::detail {

// Position of the running kernel thread. Written only by the scheduler (block.cpp).
struct ThreadPosition {
  const uint3* thread = nullptr;
  uint3 block{};
  uint3 block_dim{}, grid_dim{};
};
extern constinit thread_local ThreadPosition thread_position;

enum class Collective : unsigned char {
  kNone,
  kSyncThreads,
  kSyncWarp,
  kShuffle,
  kShuffleXor,
  kShuffleUp,
  kShuffleDown,
  kVote,
  kReduce,
};

void sync_threads();
// Votes of all threads of the block. Returns the number of true votes.
int sync_threads_count(bool vote);
void sync_warp(unsigned mask);
// Values of all lanes. They stay valid until the thread's second collective after this one.
const std::uint64_t* exchange(Collective what, unsigned mask, std::uint64_t value);
int lane();
void fence();
[[noreturn]] void trap();

template <class T>
std::uint64_t to_bits(T value) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}

// `source` outside the segment of `width` lanes gives the lane's own value, as the hardware does.
template <class T>
T shuffle(Collective what, unsigned mask, T value, int source, int first, int width) {
  const std::uint64_t* slots = exchange(what, mask, to_bits(value));
  if (source < first || source >= first + width) source = lane();
  T result;
  std::memcpy(&result, &slots[source], sizeof(T));
  return result;
}

inline int segment(int width) { return lane() & ~(width - 1); }

}  // namespace emulator::detail

#define threadIdx (*::emulator::detail::thread_position.thread)
#define blockIdx (::emulator::detail::thread_position.block)
#define blockDim (::emulator::detail::thread_position.block_dim)
#define gridDim (::emulator::detail::thread_position.grid_dim)
constexpr int warpSize = 32;

inline void __syncthreads() { emulator::detail::sync_threads(); }
inline int __syncthreads_count(int vote) { return emulator::detail::sync_threads_count(vote != 0); }
inline int __syncthreads_or(int vote) {
  return emulator::detail::sync_threads_count(vote != 0) != 0;
}
inline int __syncthreads_and(int vote) {
  return emulator::detail::sync_threads_count(vote == 0) == 0;
}
inline void __syncwarp(unsigned mask = 0xffffffffu) { emulator::detail::sync_warp(mask); }
inline void __threadfence() { emulator::detail::fence(); }
inline void __threadfence_block() { emulator::detail::fence(); }
inline void __threadfence_system() { emulator::detail::fence(); }
[[noreturn]] inline void __trap() { emulator::detail::trap(); }

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  namespace e = emulator::detail;
  const int first = e::segment(width);
  return e::shuffle(e::Collective::kShuffle, mask, value, first + (source & (width - 1)), first,
                    width);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32) {
  namespace e = emulator::detail;
  // A partner in an earlier segment may be read; one in a later segment may not.
  const int source = e::lane() ^ lane_mask;
  return e::shuffle(e::Collective::kShuffleXor, mask, value, source, 0, e::segment(width) + width);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  namespace e = emulator::detail;
  return e::shuffle(e::Collective::kShuffleUp, mask, value, e::lane() - static_cast<int>(delta),
                    e::segment(width), width);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  namespace e = emulator::detail;
  return e::shuffle(e::Collective::kShuffleDown, mask, value, e::lane() + static_cast<int>(delta),
                    e::segment(width), width);
}

inline unsigned __ballot_sync(unsigned mask, int vote) {
  namespace e = emulator::detail;
  const std::uint64_t* votes = e::exchange(e::Collective::kVote, mask, vote != 0);
  unsigned bits = 0;
  for (unsigned i = 0; i < 32; ++i) bits |= static_cast<unsigned>(votes[i]) << i;
  return bits;
}
inline int __any_sync(unsigned mask, int vote) { return __ballot_sync(mask, vote) != 0; }
inline int __all_sync(unsigned mask, int vote) { return __ballot_sync(mask, vote) == 0xffffffffu; }

#define TRIREME_EMULATED_REDUCE(name, type, expression)                                        \
  inline type name(unsigned mask, type value) {                                                \
    namespace e = emulator::detail;                                                            \
    const std::uint64_t* slots = e::exchange(e::Collective::kReduce, mask, e::to_bits(value)); \
    type a{};                                                                                  \
    std::memcpy(&a, &slots[0], sizeof(a));                                                     \
    for (int i = 1; i < 32; ++i) {                                                             \
      type b{};                                                                                \
      std::memcpy(&b, &slots[i], sizeof(b));                                                   \
      a = expression;                                                                          \
    }                                                                                          \
    return a;                                                                                  \
  }
TRIREME_EMULATED_REDUCE(__reduce_add_sync, unsigned, a + b)
TRIREME_EMULATED_REDUCE(__reduce_min_sync, unsigned, a < b ? a : b)
TRIREME_EMULATED_REDUCE(__reduce_max_sync, unsigned, a > b ? a : b)
TRIREME_EMULATED_REDUCE(__reduce_min_sync, int, a < b ? a : b)
TRIREME_EMULATED_REDUCE(__reduce_max_sync, int, a > b ? a : b)
#undef TRIREME_EMULATED_REDUCE
inline int __reduce_add_sync(unsigned mask, int value) {
  return static_cast<int>(__reduce_add_sync(mask, static_cast<unsigned>(value)));
}

namespace emulator::detail {

// Returns the old value. Relaxed, as on the device: an atomic orders only itself.
template <class T, class Update>
T atomic_update(T* address, Update update) {
  T old;
  __atomic_load(address, &old, __ATOMIC_RELAXED);
  for (;;) {
    T wanted = update(old);
    if (__atomic_compare_exchange(address, &old, &wanted, false, __ATOMIC_RELAXED,
                                  __ATOMIC_RELAXED))
      return old;
  }
}

}  // namespace emulator::detail

#define TRIREME_EMULATED_ATOMIC(name, type, expression)                                          \
  inline type name(type* address, type b) {                                                      \
    return emulator::detail::atomic_update(address, [b](type a) -> type { return expression; }); \
  }
#define TRIREME_EMULATED_ATOMICS(type)                                     \
  TRIREME_EMULATED_ATOMIC(atomicExch, type, (void(a), b))                  \
  TRIREME_EMULATED_ATOMIC(atomicMax, type, a > b ? a : b)                  \
  TRIREME_EMULATED_ATOMIC(atomicMin, type, a < b ? a : b)                  \
  TRIREME_EMULATED_ATOMIC(atomicAnd, type, a& b)                           \
  TRIREME_EMULATED_ATOMIC(atomicOr, type, a | b)                           \
  TRIREME_EMULATED_ATOMIC(atomicXor, type, a ^ b)                          \
  inline type atomicCAS(type* address, type expected, type b) {            \
    return emulator::detail::atomic_update(                                \
        address, [expected, b](type a) { return a == expected ? b : a; }); \
  }
TRIREME_EMULATED_ATOMICS(int)
TRIREME_EMULATED_ATOMICS(unsigned)
TRIREME_EMULATED_ATOMICS(unsigned long long)
#undef TRIREME_EMULATED_ATOMICS
// Signed sums wrap around on the device.
TRIREME_EMULATED_ATOMIC(atomicAdd, int,
                        static_cast<int>(static_cast<unsigned>(a) + static_cast<unsigned>(b)))
TRIREME_EMULATED_ATOMIC(atomicAdd, unsigned, a + b)
TRIREME_EMULATED_ATOMIC(atomicAdd, unsigned long long, a + b)
TRIREME_EMULATED_ATOMIC(atomicAdd, float, a + b)
TRIREME_EMULATED_ATOMIC(atomicAdd, double, a + b)
TRIREME_EMULATED_ATOMIC(atomicExch, float, (void(a), b))
#undef TRIREME_EMULATED_ATOMIC
