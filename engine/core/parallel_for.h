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

}  // namespace trireme
