#include "engine/ops/gemm/gemm_widened.h"

#include <algorithm>

#include "engine/ops/backend/pick_kernel.h"
#include "engine/ops/rows/copy_rows.kernels.h"

namespace trireme {
namespace {

// Copies of one piece: a few times the second-level caches of a few cores, and enough work for the
// library to divide among many.
constexpr int64_t kPieceBytes = int64_t{8} << 20;
constexpr int64_t kPieceAlignment = 64;  // rows or columns of a piece: whole tiles

template <class T>
cpu::ConvertRows<T> conversion(const ConstTensor& narrow, float* wide) {
  return {narrow.size(0), narrow.size(1), const_cast<T*>(narrow.as<T>()), row_stride(narrow), wide};
}

void narrow_into(Ctx& ctx, const Tensor& to, const Tensor& wide) {
  if (ctx.planning()) return;
  if (to.dtype() == DType::kBF16)
    TRIREME_KERNEL(narrow_rows<bf16>)(conversion<bf16>(to, wide.as<float>()), ctx.threads);
  else
    TRIREME_KERNEL(narrow_rows<f16>)(conversion<f16>(to, wide.as<float>()), ctx.threads);
}

// Rows or columns of a piece whose copies have `terms` floats each.
int64_t piece_size(int64_t terms) {
  const int64_t fit = kPieceBytes / (4 * std::max<int64_t>(1, terms));
  return std::max(kPieceAlignment, fit / kPieceAlignment * kPieceAlignment);
}

}  // namespace

int64_t row_stride(const ConstTensor& t) { return t.size(0) <= 1 ? t.size(1) : t.stride(0); }

Activation widened(Ctx& ctx, const char* name, const ConstTensor& t) {
  Activation wide = ctx.allocate(name, DType::kF32, t.shape());
  if (ctx.planning()) return wide;
  if (t.dtype() == DType::kBF16)
    TRIREME_KERNEL(widen_rows<bf16>)(conversion<bf16>(t, wide->as<float>()), ctx.threads);
  else
    TRIREME_KERNEL(widen_rows<f16>)(conversion<f16>(t, wide->as<float>()), ctx.threads);
  return wide;
}

void through_float32(Ctx& ctx, const GemmProblem& g, const Tensor& c, const ConstTensor& bias,
                     const std::function<void(const Tensor&, const ConstTensor&)>& product) {
  if (g.out == DType::kF32) return product(c, bias);
  const Activation c32 =
      g.accumulate ? widened(ctx, "gemm.c32", c) : ctx.allocate("gemm.c32", DType::kF32, c.shape());
  Activation bias32;
  if (bias.present()) bias32 = widened(ctx, "gemm.bias32", bias.reshape({1, g.n}));
  product(*c32, bias.present() ? bias32->reshape({g.n}) : Tensor());
  narrow_into(ctx, c, c32);
}

namespace {

// Calls product() with float32 operands in place of those of `piece`.
void multiply_wide(const Float32Product& product, GemmProblem piece, const Tensor& c,
                   const ConstTensor& a, const ConstTensor& b, const ConstTensor& bias) {
  piece.in = piece.out = DType::kF32;
  piece.lda = row_stride(a);
  piece.ldb = row_stride(b);
  piece.ldc = row_stride(c);
  product(piece, c, a, b, bias);
}

// Splits along the sums' terms.
void gemm_by_terms(Ctx& ctx, const GemmProblem& g, const Tensor& c, const ConstTensor& a,
                   const ConstTensor& b, const ConstTensor& bias, const Float32Product& product) {
  const int64_t each = piece_size(g.m + g.n);
  through_float32(ctx, g, c, bias, [&](const Tensor& c32, const ConstTensor& bias32) {
    for (int64_t begin = 0; begin < g.k; begin += each) {
      const int64_t end = std::min(g.k, begin + each);
      const Activation a32 = widened(ctx, "gemm.a32", a.slice(g.transpose_a ? 0 : 1, begin, end));
      const Activation b32 = widened(ctx, "gemm.b32", b.slice(g.transpose_b ? 1 : 0, begin, end));
      GemmProblem piece = g;
      piece.k = end - begin;
      piece.accumulate = g.accumulate || begin > 0;
      piece.has_bias = g.has_bias && begin == 0;
      multiply_wide(product, piece, c32, *a32, *b32, begin == 0 ? bias32 : ConstTensor());
    }
  });
}

// Splits along the rows of C, or its columns, whichever are more.
void gemm_by_outputs(Ctx& ctx, const GemmProblem& g, const Tensor& c, const ConstTensor& a,
                     const ConstTensor& b, const ConstTensor& bias, const Float32Product& product) {
  const bool cut_a = g.m > g.n;  // A is the larger operand
  const int64_t count = cut_a ? g.m : g.n, each = piece_size(g.k + (cut_a ? g.n : g.m));
  const Activation whole = cut_a ? widened(ctx, "gemm.b32", b) : widened(ctx, "gemm.a32", a);
  for (int64_t begin = 0; begin < count; begin += each) {
    const int64_t end = std::min(count, begin + each);
    const ConstTensor part = cut_a ? a.slice(g.transpose_a ? 1 : 0, begin, end)
                                   : b.slice(g.transpose_b ? 0 : 1, begin, end);
    const Activation part32 = widened(ctx, "gemm.part32", part);
    const Tensor& a32 = cut_a ? *part32 : *whole;
    const Tensor& b32 = cut_a ? *whole : *part32;
    GemmProblem piece = g;
    (cut_a ? piece.m : piece.n) = end - begin;
    const ConstTensor piece_bias = bias.present() && !cut_a ? bias.slice(0, begin, end) : bias;
    through_float32(ctx, piece, c.slice(cut_a ? 0 : 1, begin, end), piece_bias,
                    [&](const Tensor& c32, const ConstTensor& bias32) {
                      multiply_wide(product, piece, c32, a32, b32, bias32);
                    });
  }
}

}  // namespace

void gemm_in_float32(Ctx& ctx, const GemmProblem& g, const Tensor& c, const ConstTensor& a,
                     const ConstTensor& b, const ConstTensor& bias, const Float32Product& product) {
  const auto by_pieces = g.k > std::max(g.m, g.n) ? gemm_by_terms : gemm_by_outputs;
  by_pieces(ctx, g, c, a, b, bias, product);
}

}  // namespace trireme
