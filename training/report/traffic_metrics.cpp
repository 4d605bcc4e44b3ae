#include "training/report/traffic_metrics.h"

namespace trireme {
namespace {

// Kinds that send bytes; not a receive, nor a barrier, whose messages are empty.
constexpr std::array kKinds{CommKind::kAllReduce, CommKind::kAllGather, CommKind::kReduceScatter,
                            CommKind::kBroadcast, CommKind::kAllToAll,  CommKind::kSend,
                            CommKind::kControl};

}  // namespace

void TrafficMetrics::add(World& world, StepMetrics& metrics) {
  const Traffic total = world.traffic();
  std::array<int64_t, kKinds.size() + 1> bytes{};
  for (size_t k = 0; k < kKinds.size(); ++k)
    bytes[k] = total[kKinds[k]].sent_bytes - before_[kKinds[k]].sent_bytes;
  bytes.back() = total.total().window_bytes - before_.total().window_bytes;
  before_ = total;
  world.world().all_reduce(Tensor(bytes.data(), DType::kI64, {std::ssize(bytes)}));
  for (size_t k = 0; k < kKinds.size(); ++k)
    metrics.extra.emplace_back(concat("comm_", comm_kind_name(kKinds[k]), "_bytes"),
                               static_cast<double>(bytes[k]));
  metrics.extra.emplace_back("comm_window_bytes", static_cast<double>(bytes.back()));
}

}  // namespace trireme
