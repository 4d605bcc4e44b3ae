// Collectives on tensors in the rank's GPU memory. One object per rank, made by
// Communicator::attach and used by the thread that owns the rank's cuda::Context. Backends:
//   nccl    NCCL (parallel/comm/cuda/nccl_collectives.cpp): the host only queues work.
//   staged  Pinned host memory and the host's transport (staged_collectives.cpp): for any
//           transport, and for several ranks on one GPU; the host waits for the copies.
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
  // True if start() executes the group's calls. False for a group of one rank, whose results are
  // copies, except with NCCL in a run of one rank.
  virtual bool carries(const GroupState& group) const;
  // Collective over the group. Called for the world when the device is attached, for every other
  // group when it is made.
  virtual void open(const Group& group) = 0;
  // Starts a call of an opened group. forget() is called for each group before the destructor.
  virtual Work start(const Group& group, const CollectiveCall& call) = 0;
  virtual Work post(const Group& group, const CollectiveCall& call) = 0;  // kSend or kRecv
  // As Communicator::open_paths().
  virtual void open_paths(const Group& group, std::span<const MessagePath> paths) = 0;
  virtual void forget(const GroupState& group) noexcept = 0;
  // Called once a rank is lost: queued work must not wait for a peer any longer.
  virtual void give_up() noexcept = 0;
};

// Forward to the rank's DeviceCollectives, or copy in a group of one rank. An internal error if no
// device is attached.
Work start_on_device(const std::shared_ptr<GroupState>& group, const CollectiveCall& call);
Work post_on_device(const std::shared_ptr<GroupState>& group, const CollectiveCall& call);

// Counts a call that runs without an Operation, as Operation would.
void count_device_call(GroupState& group, const CollectiveCall& call, int64_t sent_bytes);

std::unique_ptr<DeviceCollectives> make_staged_collectives(cuda::Context& gpu,
                                                           RankState& rank_state);

namespace cuda {

// NCCL library and identity of the GPU.
struct NcclStatus {
  std::string version;  // "2.28.9"; empty: NCCL cannot be used
  std::string reason;   // why not
  std::string bus_id;   // of the context's device, on its machine
};
TRIREME_CUDA_DECL NcclStatus probe_nccl(const Context& gpu);
TRIREME_CUDA_DECL std::unique_ptr<DeviceCollectives> make_nccl_collectives(Context& gpu,
                                                                           RankState& rank_state);

}  // namespace cuda
}  // namespace trireme
