// parallel_for: contiguous ranges of [0, n) over an OpenMP team, one range per thread.
// The split affects only who computes an element, never the order inside it, so results do not
// depend on the number of threads as long as f treats its items independently.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace trireme {

// f(begin, end). `grain`: fewer items than this are not worth a thread.
template <class F>
[[gnu::always_inline]] inline void parallel_for(int threads, int64_t n, int64_t grain, F&& f) {
  const int64_t wanted = (n + grain - 1) / std::max<int64_t>(1, grain);
  const int team = static_cast<int>(std::clamp<int64_t>(wanted, 1, threads));
  if (team == 1) {
    if (n > 0) f(int64_t{0}, n);
    return;
  }
#pragma omp parallel num_threads(team)
  {
    const int64_t rank = omp_get_thread_num(), count = omp_get_num_threads();
    const int64_t begin = n * rank / count, end = n * (rank + 1) / count;
    if (begin < end) f(begin, end);
  }
}

// As parallel_for, in pieces of at most `piece` items: who has done its own range takes pieces of
// the others'. For work that waits for memory, which other work on the machine may hold up for one
// thread and not for another.
template <class F>
[[gnu::always_inline]] inline void parallel_pieces(int threads, int64_t n, int64_t piece, F&& f) {
  constexpr int kMost = 256;  // threads
  struct alignas(64) Range {
    int64_t next, end;
  };
  const int64_t wanted = (n + piece - 1) / piece;
  const int team = static_cast<int>(std::clamp<int64_t>(wanted, 1, std::min(threads, kMost)));
  if (team == 1) {
    if (n > 0) f(int64_t{0}, n);
    return;
  }
  Range ranges[kMost];
  for (int i = 0; i < team; ++i) ranges[i] = {n * i / team, n * (i + 1) / team};
#pragma omp parallel num_threads(team)
  for (int i = omp_get_thread_num(), left = team; left > 0; --left, i = i + 1 == team ? 0 : i + 1) {
    Range& range = ranges[i];
    for (;;) {
      // A builtin: kernels may not have a library's functions (engine/ops/cpu/isa.h).
      const int64_t begin = __atomic_fetch_add(&range.next, piece, __ATOMIC_RELAXED);
      if (begin >= range.end) break;
      f(begin, std::min(begin + piece, range.end));
    }
  }
}

}  // namespace trireme
