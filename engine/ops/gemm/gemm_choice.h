// Selection of the code that computes a product on the CPU: our kernels or the library.
//
// The active instruction set decides, not the processor: a process limited to AVX2 on an AVX-512
// machine takes the paths of an AVX2 machine and produces its bits.
#pragma once

#include "engine/core/cpu.h"
#include "engine/ops/gemm/gemm_problem.h"

namespace trireme {

class GemmEngine;

// kStreamed: one row of A that stays in cache (gemv.cpu.h). kFewRows: register tiles
// (gemm_rows.cpu.h or gemm_dot.cpu.h). kAmx: AMX tiles (gemm_amx.cpu.h). kLibrary: oneDNN.
// kWidened: float32 copies of 16-bit operands (gemm_widened.h), then the choice for float32.
enum class GemmPath { kStreamed, kFewRows, kAmx, kLibrary, kWidened };

// Properties of the processor that select a product's path.
struct GemmProcessor {
  Isa isa = Isa::kPortable;  // the active set
  // The library has bfloat16 products that are faster than float32 ones: by AMX, or by fast dot
  // products. If a dot product takes as long as four multiply-adds (Sapphire Rapids), products of
  // float32 copies are twice as fast.
  bool has_library_bf16 = false;
  bool has_fast_bf16_dots = false;  // engine/core/cpu.h
  bool has_amx_bf16 = false;        // engine/core/amx.h
};

// This machine's properties, with the active set.
GemmProcessor gemm_processor(const GemmEngine& engine);

// Element types that the library multiplies: float32 always, bfloat16 under AVX-512 if its native
// products are faster.
bool library_multiplies(const GemmProcessor& processor, DType dtype);

// True if kFewRows multiplies bfloat16 by gemm_dot.cpu.h.
bool uses_bf16_dots(const GemmProcessor& processor);

// Path of a float32, bfloat16 or float16 product that need not be batch-invariant. Pure.
GemmPath gemm_path(const GemmProcessor& processor, const GemmProblem& problem);

}  // namespace trireme
