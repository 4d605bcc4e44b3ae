// Traffic counters of communicators: calls and bytes per kind of operation, counted where bytes
// move.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace trireme {

enum class CommKind : uint8_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kAllToAll,
  kSend,
  kRecv,
  kBarrier,
  kControl,  // strings, splits, set-up of windows and NCCL, checks of the debug mode
};
inline constexpr size_t kCommKinds = 9;
const char* comm_kind_name(CommKind kind);

struct Traffic {
  struct Counter {
    int64_t calls = 0;
    int64_t payload_bytes = 0;  // size of the caller's operand on this rank
    int64_t sent_bytes = 0;     // point-to-point: added at each send
    int64_t window_bytes = 0;   // node-local window: added at each copy into it
    // Wall time inside the operation, including waits for peers; 0 for posted messages and NCCL.
    double seconds = 0;
    Counter& operator+=(const Counter& other);
    Counter operator-(const Counter& before) const;
  };
  std::array<Counter, kCommKinds> counters{};

  Counter& operator[](CommKind kind) { return counters[static_cast<size_t>(kind)]; }
  const Counter& operator[](CommKind kind) const { return counters[static_cast<size_t>(kind)]; }
  Counter total() const;
  Traffic& operator+=(const Traffic& other);
};

}  // namespace trireme
