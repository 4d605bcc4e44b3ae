// Description of one communicator call: operation and checked operands.
#pragma once

#include <vector>

#include "engine/core/tensor.h"
#include "engine/ops/rows/reduce.h"
#include "parallel/comm/liveness/traffic.h"

namespace trireme {

struct GroupState;

struct CollectiveCall {
  enum class Form : uint8_t {
    kAllReduce,            // out in place
    kAllGather,            // out, in
    kReduceScatter,        // out, in
    kAllGatherPieces,      // out in place
    kReduceScatterPieces,  // out in place
    kBroadcast,            // out in place, from `from`
    kAllToAll,             // out, in, counts
    kSend,                 // in, to
    kRecv,                 // out, from
    kSendRecv,             // in, to; out, from
  };
  Form form = Form::kAllReduce;
  Tensor out = {};
  ConstTensor in = {};
  ReduceOp reduce = ReduceOp::kSum;
  int to = -1, from = -1;  // group ranks
  int tag = 0;
  std::vector<int64_t> out_counts = {}, in_counts = {};  // elements, by group rank

  CommKind kind() const;
  // Operand whose size counts as this rank's payload and whose dtype is compared between ranks.
  const ConstTensor& payload() const;
  bool on_device() const { return payload().device() == DeviceType::kCuda; }
};

// Runs the call on host memory, in the one thread that may be inside the transport (CommWorker).
void run_on_host(GroupState& group, const CollectiveCall& call);

// Bytes that group rank `rank` of `size` sends in the host's point-to-point algorithm for the call,
// without shared windows. The NCCL backend counts by this formula.
int64_t ring_bytes(const CollectiveCall& call, int rank, int size);

}  // namespace trireme
