// Return of freed memory to the system. An allocator keeps what is freed, so that without it a
// process holds for good what its busiest second needed.
#pragma once

#include <chrono>
#include <cstdint>

namespace trireme {

// Bytes of the heap in use: allocated and not freed. 0 with a C library that does not count them.
int64_t heap_in_use();

// Gives freed memory back once much less is in use than at the peak. One thread at a time.
class HeapTrim {
 public:
  static constexpr int64_t kFall = int64_t{64} << 20;  // bytes below the peak
  static constexpr std::chrono::seconds kInterval{1};  // between two looks at the heap

  // trim_after_fall() at most once an interval. To be called often, by a thread that no other waits
  // for.
  void poll();
  // Counts the heap, and gives back what is free where it has fallen.
  void trim_after_fall();
  // Whether kFall bytes less are in use than at the peak. Then a new peak begins here.
  bool has_fallen(int64_t in_use);

 private:
  int64_t peak_ = 0;
  std::chrono::steady_clock::time_point next_ = {};
};

}  // namespace trireme
