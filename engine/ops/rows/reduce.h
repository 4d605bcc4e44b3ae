// Element-wise reduction of flat ranges of equal length: the arithmetic of the CPU collectives.
#pragma once

#include <cstdint>
#include <span>

#include "engine/core/dtype.h"

namespace trireme {

enum class ReduceOp : uint8_t { kSum, kMax, kMin };
const char* reduce_op_name(ReduceOp op);
inline std::string text(ReduceOp op) { return reduce_op_name(op); }

// out[k] = in[0][k] op in[1][k] op ..., in this order, for k in [0, n); at least one input.
// dtypes: float64, float32, bfloat16, float16 (16-bit types accumulate in float32 and round once),
// int64, int32. Integer sums wrap. kMax and kMin return NaN if any operand is NaN. out may be one
// of the inputs; inputs may overlap each other, but none may overlap out partially.
void reduce_ranges(DType dtype, ReduceOp op, void* out, std::span<const void* const> in, int64_t n);

// acc[k] += x[k] in float32, for a bfloat16 or float16 x: a partial sum that round_from_float()
// rounds once at the end.
void accumulate_as_float(DType dtype, float* acc, const void* x, int64_t n);
// y[k] = acc[k], rounded to nearest even, for a bfloat16 or float16 y.
void round_from_float(DType dtype, void* y, const float* acc, int64_t n);

}  // namespace trireme
