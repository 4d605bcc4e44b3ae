#include "parallel/pipeline/schedule.h"

#include <array>

#include "engine/core/error.h"

namespace trireme {
namespace {

constexpr std::array<const char*, 7> kNames = {"forward_only", "gpipe", "1f1b",  "interleaved_1f1b",
                                               "zb_h1",        "zb_h2", "custom"};

}  // namespace

const char* instruction_name(InstructionKind kind) {
  switch (kind) {
    case InstructionKind::kForward: return "forward";
    case InstructionKind::kBackward: return "backward";
    case InstructionKind::kBackwardInput: return "backward_input";
    case InstructionKind::kBackwardWeight: return "backward_weight";
  }
  TRIREME_UNREACHABLE("instruction kind ", static_cast<int>(kind));
}

std::string text(const Instruction& in) {
  return concat(instruction_name(in.kind), " of chunk ", in.chunk, ", micro-batch ",
                in.micro_batch);
}

const char* schedule_name(ScheduleKind kind) { return kNames.at(static_cast<size_t>(kind)); }

}  // namespace trireme
