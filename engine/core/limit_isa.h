// Limit of the instruction sets of this process.
#pragma once

#include "engine/core/cpu.h"

namespace trireme {

// Lowers best_isa() and active_isa() for the life of the process; InputError for a set above
// best_isa(). Commands call limit_instruction_set (engine/ops/instruction_set.h), which also limits
// the GEMM library.
void limit_isa(Isa isa);

}  // namespace trireme
