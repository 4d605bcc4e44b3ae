#include "engine/ops/quantized/float8_gemm.h"

#include "engine/ops/gemm/gemm.cuda.h"
#include "engine/ops/gemm/gemm.h"
#include "engine/ops/gemm/gemm_problem.h"
#include "engine/ops/rows/elementwise.h"

namespace trireme {
namespace {

constexpr const char* kFloat8Op = "float8_gemm";
constexpr int64_t kAligned = 16;  // bytes, and number of codes
constexpr int64_t kRowsOfGroups = 4;

bool in_groups(const Float8Matrix& m) { return m.scaling != Float8Scaling::kTensor; }

void check_codes(const char* name, const Float8Matrix& m) {
  TRIREME_CHECK(m.codes.rank() == 2, kFloat8Op, ": ", name, " is ", m.codes.shape(),
                ", expected a matrix");
  check_operand(kFloat8Op, name, m.codes, DType::kU8, m.codes.shape());
  check_operand(kFloat8Op, "inverse", m.inverse, DType::kF32,
                float8_inverse_shape(m.scaling, m.codes.shape()));
}

void check_aligned(const char* name, const ConstTensor& t) {
  TRIREME_CHECK(reinterpret_cast<uintptr_t>(t.raw()) % kAligned == 0, kFloat8Op, ": ", name, " at ",
                reinterpret_cast<uintptr_t>(t.raw()), " does not begin at a multiple of ", kAligned,
                " bytes");
}

void check_scalings(const Float8Matrix& a, const Float8Matrix& b) {
  TRIREME_CHECK(in_groups(a) == in_groups(b), kFloat8Op,
                ": one operand has one scale, the other many");
  TRIREME_CHECK(a.scaling != Float8Scaling::kBlock || b.scaling != Float8Scaling::kBlock, kFloat8Op,
                ": A and B both have scales of blocks");
  if (!in_groups(a)) return;
  check_aligned("A's inverse", a.inverse);
  check_aligned("B's inverse", b.inverse);
  if (a.codes.size(0) % kRowsOfGroups != 0)
    fail_input("a product of 8-bit floats with scales of groups needs rows that are a multiple of ",
               kRowsOfGroups, ", not ", a.codes.size(0), "; use one scale for the tensor");
}

void check_product(const Tensor& c, const Float8Matrix& a, const Float8Matrix& b) {
  check_codes("A", a);
  check_codes("B", b);
  const int64_t n = b.codes.size(0), k = b.codes.size(1);
  TRIREME_CHECK(a.codes.size(1) == k, kFloat8Op, ": A is ", a.codes.shape(), ", B is ",
                b.codes.shape(), ", expected equal K");
  check_shape(kFloat8Op, "C", c, {a.codes.size(0), n});
  check_contiguous(kFloat8Op, "C", c);
  TRIREME_CHECK(c.dtype() == DType::kBF16 || c.dtype() == DType::kF32 || c.dtype() == DType::kF64,
                kFloat8Op, ": C is ", c.dtype(), ", expected bfloat16, float32 or float64");
  TRIREME_CHECK(a.format == Float8Format::kE4M3 || b.format == Float8Format::kE4M3, kFloat8Op,
                ": A and B are both E5M2");
  if (k <= 0 || k % kAligned != 0 || n % kAligned != 0)
    fail_input("a product of 8-bit floats (", c.size(0), ", ", k, ") x (", k, ", ", n,
               ") needs inner size and columns that are multiples of ", kAligned,
               "; keep this layer in bfloat16 or choose other sizes");
  check_scalings(a, b);
  check_aligned("A", a.codes);
  check_aligned("B", b.codes);
  check_aligned("C", c);
}

void check_device(const cuda::DeviceInfo& info, bool groups) {
  const int capability = info.compute_major * 10 + info.compute_minor;
  if (!groups && capability < 89)
    fail_input("device ", info.name, " has compute capability ", info.compute_major, ".",
               info.compute_minor,
               ", products of 8-bit floats need 8.9 or higher; use bfloat16 on it");
  if (groups && capability != 90)
    fail_input("device ", info.name, " has compute capability ", info.compute_major, ".",
               info.compute_minor,
               ", products of 8-bit floats with scales of groups are computed on 9.0 only; use one "
               "scale for each tensor, or bfloat16");
}

void multiply_codes(Ctx& ctx, const Tensor& c, const Float8Matrix& a, const Float8Matrix& b,
                    bool accumulate) {
  if (ctx.planning()) return;
  const int64_t k = a.codes.size(1), n = c.size(1);
  const GemmProblem problem{.m = c.size(0),
                            .n = n,
                            .k = k,
                            .lda = k,
                            .ldb = k,
                            .ldc = n,
                            .transpose_b = true,
                            .in = DType::kU8,
                            .out = c.dtype(),
                            .a_format = a.format,
                            .b_format = b.format,
                            .a_scaling = a.scaling,
                            .b_scaling = b.scaling,
                            .accumulate = accumulate};
  cuda::gemm(*ctx.gpu, problem,
             {.c = c.raw(),
              .a = a.codes.raw(),
              .b = b.codes.raw(),
              .a_inverse = a.inverse.as<float>(),
              .b_inverse = b.inverse.as<float>()});
}

Activation read(Ctx& ctx, const char* name, DType dtype, const Float8Matrix& m) {
  Activation wide = ctx.allocate(name, dtype, m.codes.shape());
  dequantize_float8(ctx, *wide, m.codes, m.inverse, m.format, m.scaling);
  return wide;
}

}  // namespace

void float8_gemm(Ctx& ctx, const Tensor& c, const Float8Matrix& a, const Float8Matrix& b,
                 bool accumulate) {
  check_product(c, a, b);
  if (c.numel() == 0) return;
  const bool wide = c.dtype() == DType::kF64;
  if (ctx.gpu != nullptr && !wide) {
    const TimeScope timed(ctx.profile, TimeCategory::kGemm);
    check_device(ctx.gpu->info, in_groups(a));
    return multiply_codes(ctx, c, a, b, accumulate);
  }
  const DType sums = wide ? DType::kF64 : DType::kF32;
  const Activation wide_a = read(ctx, "float8_gemm.a", sums, a),
                   wide_b = read(ctx, "float8_gemm.b", sums, b);
  const GemmArgs args{.accumulate = accumulate};
  if (c.dtype() == sums)
    return gemm(ctx, c, *wide_a, Transpose::kNo, *wide_b, Transpose::kYes, args);
  const Activation sum = ctx.allocate("float8_gemm.c", DType::kF32, c.shape());
  if (accumulate) cast(ctx, *sum, c);
  gemm(ctx, *sum, *wide_a, Transpose::kNo, *wide_b, Transpose::kYes, args);
  cast(ctx, c, *sum);
}

}  // namespace trireme
