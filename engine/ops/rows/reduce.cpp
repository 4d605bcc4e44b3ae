#include "engine/ops/rows/reduce.h"

#include "engine/ops/backend/pick_kernel.h"
#include "engine/ops/rows/reduce.cpu.h"

namespace trireme {

const char* reduce_op_name(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return "sum";
    case ReduceOp::kMax: return "max";
    case ReduceOp::kMin: return "min";
  }
  TRIREME_UNREACHABLE("reduce op ", static_cast<int>(op));
}

namespace {

template <class T>
void run(ReduceOp op, void* out, std::span<const void* const> in, int64_t n) {
  TRIREME_KERNEL(reduce_ranges<T>)
  (static_cast<T*>(out), in.data(), static_cast<int64_t>(in.size()), n, static_cast<int>(op));
}

}  // namespace

void reduce_ranges(DType dtype, ReduceOp op, void* out, std::span<const void* const> in,
                   int64_t n) {
  TRIREME_CHECK(!in.empty() && n >= 0, "reduce_ranges: ", in.size(), " ranges of ", n,
                " elements, expected at least one range");
  switch (dtype) {
    case DType::kF64: return run<double>(op, out, in, n);
    case DType::kF32: return run<float>(op, out, in, n);
    case DType::kBF16: return run<bf16>(op, out, in, n);
    case DType::kF16: return run<f16>(op, out, in, n);
    case DType::kI64: return run<int64_t>(op, out, in, n);
    case DType::kI32: return run<int32_t>(op, out, in, n);
    default: break;
  }
  TRIREME_UNREACHABLE("reduce_ranges has no kernel for dtype ", dtype);
}

void accumulate_as_float(DType dtype, float* acc, const void* x, int64_t n) {
  if (dtype == DType::kBF16)
    TRIREME_KERNEL(accumulate_as_float<bf16>)(acc, static_cast<const bf16*>(x), n);
  else if (dtype == DType::kF16)
    TRIREME_KERNEL(accumulate_as_float<f16>)(acc, static_cast<const f16*>(x), n);
  else
    TRIREME_UNREACHABLE("accumulate_as_float has no kernel for dtype ", dtype);
}

void round_from_float(DType dtype, void* y, const float* acc, int64_t n) {
  if (dtype == DType::kBF16)
    TRIREME_KERNEL(round_from_float<bf16>)(static_cast<bf16*>(y), acc, n);
  else if (dtype == DType::kF16)
    TRIREME_KERNEL(round_from_float<f16>)(static_cast<f16*>(y), acc, n);
  else
    TRIREME_UNREACHABLE("round_from_float has no kernel for dtype ", dtype);
}

}  // namespace trireme
