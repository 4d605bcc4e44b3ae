// What a rank does with tensors in its GPU's memory. One object per rank, made by
// Communicator::attach, used by the thread that the rank's cuda::Context belongs to. How tensors
// travel:
//   nccl    NCCL (parallel/comm/cuda/nccl_collectives.cpp): the host queues work and waits for nothing.
//   staged  through pinned host memory and the host's transport (staged_collectives.cpp): works with every
//           transport and with several ranks on one GPU; the host waits for the copies.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "engine/device/context.h"
#include "parallel/comm/collectives/collective_call.h"
#include "parallel/comm/communicator.h"

namespace trireme {

class DeviceCollectives {
 public:
  using Group = std::shared_ptr<GroupState>;

  DeviceCollectives() = default;
  virtual ~DeviceCollectives() = default;
  DeviceCollectives(const DeviceCollectives&) = delete;
  DeviceCollectives& operator=(const DeviceCollectives&) = delete;

  virtual cuda::Context& gpu() = 0;
  virtual std::string name() const = 0;  // "nccl 2.28.9", "staged"
  // Whether calls of the group come here: in a group of one rank results are copies.
  virtual bool carries(const GroupState& group) const;
  // The world's group when the device has been attached, every other one when it has been made.
  // Collective over the group.
  virtual void open(const Group& group) = 0;
  // A call of such a group. Groups end (forget) before this does.
  virtual Work start(const Group& group, const CollectiveCall& call) = 0;
  virtual Work post(const Group& group, const CollectiveCall& call) = 0;  // kSend or kRecv
  virtual void open_paths(const Group& group, std::span<const MessagePath> paths) = 0;
  virtual void forget(const GroupState& group) noexcept = 0;
  // This rank gives up: nothing queued may wait for a peer any longer.
  virtual void give_up() noexcept = 0;
};

// Through the rank's DeviceCollectives; a program fault where no device was attached.
Work start_on_device(const std::shared_ptr<GroupState>& group, const CollectiveCall& call);
Work post_on_device(const std::shared_ptr<GroupState>& group, const CollectiveCall& call);

// Counts a call that passes no Operation, as Operation would.
void count_device_call(GroupState& group, const CollectiveCall& call, int64_t sent_bytes);

std::unique_ptr<DeviceCollectives> make_staged_collectives(cuda::Context& gpu,
                                                           RankState& rank_state);

namespace cuda {

// The library, and which GPU this is.
struct NcclStatus {
  std::string version;  // "2.28.9"; empty: it cannot be used
  std::string reason;   // then
  std::string bus_id;   // of the context's device, on its machine
};
TRIREME_CUDA_DECL NcclStatus probe_nccl(const Context& gpu);
TRIREME_CUDA_DECL std::unique_ptr<DeviceCollectives> make_nccl_collectives(Context& gpu,
                                                                           RankState& rank_state);

}  // namespace cuda
}  // namespace trireme
