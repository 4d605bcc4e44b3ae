// Which code computes a product on the CPU: our kernels or the library.
//
// The chosen instruction set decides, never the processor: a process limited to AVX2 on an AVX-512
// machine takes the paths, and gives the bits, of an AVX2 machine.
#pragma once

#include "engine/core/cpu.h"
#include "engine/ops/gemm_problem.h"

namespace trireme {

// kStreamed: one row that stays in cache (cpu/gemv.h). kFewRows: our tiles (cpu/gemm_rows.h).
// kLibrary: oneDNN. kWidened: float32 copies of 16-bit operands, then the choice for float32.
enum class GemmPath { kStreamed, kFewRows, kLibrary, kWidened };

// Element types that the library multiplies under the instruction set `isa`: float32 always,
// bfloat16 under AVX-512 where its kernels exist on this processor (`library_has_bf16`).
bool library_multiplies(Isa isa, bool library_has_bf16, DType dtype);

// The path of a float32, bfloat16 or float16 product that need not be batch-invariant. Pure.
GemmPath gemm_path(Isa isa, bool library_has_bf16, const GemmProblem& problem);

}  // namespace trireme
