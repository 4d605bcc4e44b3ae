// Heap trimming: returns freed memory to the system. The allocator keeps it otherwise, and a
// process stays at its peak size.
#pragma once

#include <chrono>
#include <cstdint>

namespace trireme {

// Heap bytes in use: allocated and not freed. 0 with a C library that does not count them.
int64_t heap_in_use();

// Returns freed memory once much less is in use than at the peak. One thread at a time.
class HeapTrim {
 public:
  static constexpr int64_t kFall = int64_t{64} << 20;  // bytes below the peak
  static constexpr std::chrono::seconds kInterval{1};  // between two heap counts

  // Calls trim_after_fall() at most once per interval. To be called often, by a thread that no
  // other waits for.
  void poll();
  // Counts the heap, and returns free memory if it has shrunk (has_fallen()).
  void trim_after_fall();
  // Whether kFall bytes less are in use than at the peak. If so, a new peak starts here.
  bool has_fallen(int64_t in_use);

 private:
  int64_t peak_ = 0;
  std::chrono::steady_clock::time_point next_ = {};
};

}  // namespace trireme
