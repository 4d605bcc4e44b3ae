#include "parallel/comm/liveness/traffic.h"

#include "engine/core/error.h"

namespace trireme {

const char* comm_kind_name(CommKind kind) {
  switch (kind) {
    case CommKind::kAllReduce: return "all_reduce";
    case CommKind::kAllGather: return "all_gather";
    case CommKind::kReduceScatter: return "reduce_scatter";
    case CommKind::kBroadcast: return "broadcast";
    case CommKind::kAllToAll: return "all_to_all";
    case CommKind::kSend: return "send";
    case CommKind::kRecv: return "recv";
    case CommKind::kBarrier: return "barrier";
    case CommKind::kControl: return "control";
  }
  TRIREME_UNREACHABLE("comm kind ", static_cast<int>(kind));
}

Traffic::Counter& Traffic::Counter::operator+=(const Counter& other) {
  calls += other.calls;
  payload_bytes += other.payload_bytes;
  sent_bytes += other.sent_bytes;
  window_bytes += other.window_bytes;
  seconds += other.seconds;
  return *this;
}

Traffic::Counter Traffic::Counter::operator-(const Counter& before) const {
  return {calls - before.calls, payload_bytes - before.payload_bytes,
          sent_bytes - before.sent_bytes, window_bytes - before.window_bytes,
          seconds - before.seconds};
}

Traffic::Counter Traffic::total() const {
  Counter sum;
  for (const Counter& c : counters) sum += c;
  return sum;
}

Traffic& Traffic::operator+=(const Traffic& other) {
  for (size_t k = 0; k < kCommKinds; ++k) counters[k] += other.counters[k];
  return *this;
}

}  // namespace trireme
