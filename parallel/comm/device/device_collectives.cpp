#include "parallel/comm/device/device_collectives.h"

#include "parallel/comm/collectives/operation.h"

namespace trireme {
namespace {

using Form = CollectiveCall::Form;

DeviceCollectives& attached(GroupState& group, const CollectiveCall& call) {
  DeviceCollectives* device = group.rank_state->device.get();
  TRIREME_CHECK(device != nullptr, comm_kind_name(call.kind()), " in group \"", group.name,
                "\" of a tensor on a GPU, and no device is attached");
  return *device;
}

// Group of one rank: results are copies of operands.
void copy_to_itself(cuda::Context& gpu, const CollectiveCall& call) {
  const bool copies = call.form == Form::kAllGather || call.form == Form::kReduceScatter ||
                      call.form == Form::kAllToAll;
  if (copies && call.out.raw() != call.in.raw())
    cuda::copy_async(gpu, gpu.main, call.out.raw(), call.in.raw(), call.in.bytes());
}

}  // namespace

bool DeviceCollectives::carries(const GroupState& group) const { return group.size() > 1; }

void count_device_call(GroupState& group, const CollectiveCall& call, int64_t sent_bytes) {
  const Traffic::Counter moved{1, call.payload().bytes(), sent_bytes, 0, 0};
  group.rank_state->count(call.kind(), moved);
  const std::lock_guard lock(group.posted_mutex);
  group.posted_traffic[call.kind()] += moved;
}

Work start_on_device(const std::shared_ptr<GroupState>& group, const CollectiveCall& call) {
  DeviceCollectives& device = attached(*group, call);
  if (device.carries(*group)) return device.start(group, call);
  count_device_call(*group, call, 0);
  copy_to_itself(device.gpu(), call);
  return {};
}

Work post_on_device(const std::shared_ptr<GroupState>& group, const CollectiveCall& call) {
  return attached(*group, call).post(group, call);
}

}  // namespace trireme
