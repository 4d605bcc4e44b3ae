// Instruction set of everything that computes on the CPU: our kernels and the GEMM library.
#pragma once

#include "engine/core/cpu.h"

namespace trireme {

// Limits kernels and library to `isa` for the life of the process (config key cpu.isa, option
// --isa): what this machine then computes is what a machine without the better sets would compute.
// A set that is not below best_isa() leaves the library its own best. Call before the first Ctx;
// Error afterwards, InputError where !has_isa(isa).
void limit_instruction_set(Isa isa);

}  // namespace trireme
