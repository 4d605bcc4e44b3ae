#include "engine/core/heap_trim.h"

#include <algorithm>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace trireme {

int64_t heap_in_use() {
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
  const struct mallinfo2 heap = mallinfo2();
  return static_cast<int64_t>(heap.uordblks + heap.hblkhd);
#else
  return 0;
#endif
}

void HeapTrim::poll() {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return;
  next_ = now + kInterval;
  trim_after_fall();
}

void HeapTrim::trim_after_fall() {
  if (!has_fallen(heap_in_use())) return;
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

bool HeapTrim::has_fallen(int64_t in_use) {
  peak_ = std::max(peak_, in_use);
  if (in_use > peak_ - kFall) return false;
  peak_ = in_use;
  return true;
}

}  // namespace trireme
