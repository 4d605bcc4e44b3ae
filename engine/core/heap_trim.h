// Heap trimming: returns freed memory to the system. The allocator would keep it, and the process
// would stay at its peak size.
#pragma once

#include <chrono>
#include <cstdint>

namespace trireme {

// Heap bytes in use: allocated and not freed. 0 unless the C library is glibc 2.33 or later.
int64_t heap_in_use();

// Returns freed memory to the system once at least kFall bytes less are in use than at the peak:
// the highest count since the last return. No effect where heap_in_use() is 0. Not thread-safe.
class HeapTrim {
 public:
  static constexpr int64_t kFall = int64_t{64} << 20;  // bytes below the peak
  static constexpr std::chrono::seconds kInterval{1};  // between two heap counts

  // Calls trim_after_fall() at most once per kInterval. Call it often, on a thread that no other
  // thread waits for.
  void poll();
  // Measures the heap and, if has_fallen(), returns freed memory to the system.
  void trim_after_fall();
  // Returns whether in_use (bytes) is at least kFall below the peak; if so, resets the peak to
  // in_use.
  bool has_fallen(int64_t in_use);

 private:
  int64_t peak_ = 0;
  std::chrono::steady_clock::time_point next_ = {};
};

}  // namespace trireme
