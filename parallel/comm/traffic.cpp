#include "parallel/comm/traffic.h"

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

Traffic::Counter Traffic::total() const {
  Counter sum;
  for (const Counter& c : counters) {
    sum.calls += c.calls;
    sum.payload_bytes += c.payload_bytes;
    sum.sent_bytes += c.sent_bytes;
    sum.window_bytes += c.window_bytes;
    sum.seconds += c.seconds;
  }
  return sum;
}

}  // namespace trireme
