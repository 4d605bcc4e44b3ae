// Instruction set of all CPU computation: our kernels and the GEMM library.
#pragma once

#include "engine/core/cpu.h"

namespace trireme {

// Limits kernels and library to `isa` for the life of the process (config key cpu.isa, option
// --isa): this machine then computes the same results as one without the better sets. A set that is
// not below best_isa() does not limit the library. Call before the first Ctx: Error afterwards if
// the library must be limited. InputError if !has_isa(isa).
void limit_instruction_set(Isa isa);

}  // namespace trireme
