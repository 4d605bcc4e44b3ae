// parallel_for: contiguous ranges of [0, n) over an OpenMP team, one range per thread. The split
// affects only which thread computes an element, never the order inside it, so results do not
// depend on the number of threads as long as f treats its items independently.
//
// With little work, some threads of the team get no range. A smaller team would not be cheaper:
// GCC's OpenMP ends the threads that a smaller team does not need and starts new ones for the next
// larger team.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace trireme {

// Calls f(begin, end) once per range, on the calling thread alone if one range suffices; no call
// if n is 0. threads: team size, at least 1. grain: fewer items than this are not worth a thread.
template <class F>
[[gnu::always_inline]] inline void parallel_for(int threads, int64_t n, int64_t grain, F&& f) {
  const int64_t wanted = (n + grain - 1) / std::max<int64_t>(1, grain);
  const int64_t ranges = std::clamp<int64_t>(wanted, 1, threads);
  if (ranges == 1) {
    if (n > 0) f(int64_t{0}, n);
    return;
  }
#pragma omp parallel num_threads(threads)
  {
    const int64_t rank = omp_get_thread_num();
    const int64_t count = std::min<int64_t>(ranges, omp_get_num_threads());
    const int64_t begin = n * rank / count, end = n * (rank + 1) / count;
    if (rank < count && begin < end) f(begin, end);
  }
}

// parallel_for with work stealing: calls f for pieces of at most `piece` items, and a thread that
// has finished its own range processes pieces of the others. At most 256 threads work. With
// `threads` = 1 there is one call, for all n items. For memory-bound work, which other load on the
// machine may delay on some of the threads.
template <class F>
[[gnu::always_inline]] inline void parallel_pieces(int threads, int64_t n, int64_t piece, F&& f) {
  constexpr int kMax = 256;  // threads
  struct alignas(64) Range {
    int64_t next, end;
  };
  const int64_t wanted = (n + piece - 1) / piece;
  const int count = static_cast<int>(std::clamp<int64_t>(wanted, 1, std::min(threads, kMax)));
  if (count == 1) {
    if (n > 0) f(int64_t{0}, n);
    return;
  }
  Range ranges[kMax];
  for (int i = 0; i < count; ++i) ranges[i] = {n * i / count, n * (i + 1) / count};
#pragma omp parallel num_threads(threads)
  for (int i = omp_get_thread_num(), left = i < count ? count : 0; left > 0;
       --left, i = i + 1 == count ? 0 : i + 1) {
    Range& range = ranges[i];
    for (;;) {
      // A builtin: kernels may not call library functions (engine/ops/backend/isa.h).
      const int64_t begin = __atomic_fetch_add(&range.next, piece, __ATOMIC_RELAXED);
      if (begin >= range.end) break;
      f(begin, std::min(begin + piece, range.end));
    }
  }
}

}  // namespace trireme
