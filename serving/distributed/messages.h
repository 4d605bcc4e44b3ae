// Messages between the leading process and the ranks, over the control channel.
#pragma once

#include "parallel/comm/control/control_channel.h"

namespace trireme {

enum class MessageKind : uint32_t {
  kReady = kFirstMessageKind,  // from a rank: it has loaded the model
  kPlan,                       // to a rank. number: of the plan
  kOutput,                     // from a rank: result of a plan. number: of the plan
  kBeat,                       // from a rank: heartbeat. number: of the last plan computed
  kEnd,                        // to a rank: no more plans
  kFailed,                     // from a rank: the error that ends it, as text
  kTask,                       // to a rank that starts (rank_weights.h, as all below)
  kStage,
  kStaged,
  kUse,
  kUsed,
  kDrop,
};

}  // namespace trireme
