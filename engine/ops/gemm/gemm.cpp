#include "engine/ops/gemm/gemm.h"

#include <cstring>
#include <utility>

#include "engine/ops/backend/pick_kernel.h"
#include "engine/ops/gemm/gemm.cuda.h"
#include "engine/ops/gemm/gemm_amx.cpu.h"
#include "engine/ops/gemm/gemm_blocked.cpu.h"
#include "engine/ops/gemm/gemm_choice.h"
#include "engine/ops/gemm/gemm_dot.cpu.h"
#include "engine/ops/gemm/gemm_library.h"
#include "engine/ops/gemm/gemm_rows.cpu.h"
#include "engine/ops/gemm/gemm_widened.h"
#include "engine/ops/gemm/gemv.cpu.h"

namespace trireme {
namespace {

void check_matrix(const char* name, const ConstTensor& t) {
  TRIREME_CHECK(t.present() && t.rank() == 2, "gemm: ", name, " is ", t.shape(),
                ", expected a matrix");
  TRIREME_CHECK(t.size(1) <= 1 || t.stride(1) == 1, "gemm: ", name, " ", t.shape(),
                " has column stride ", t.stride(1), ", expected 1");
  TRIREME_CHECK(t.size(0) <= 1 || t.stride(0) >= t.size(1), "gemm: rows of ", name, " ", t.shape(),
                " overlap: row stride ", t.stride(0));
}

bool overlap(const ConstTensor& x, const ConstTensor& y) {
  if (x.numel() == 0 || y.numel() == 0) return false;
  const auto range = [](const ConstTensor& t) {
    const auto begin = reinterpret_cast<uintptr_t>(t.raw());
    const int64_t elements = (t.size(0) - 1) * row_stride(t) + t.size(1);
    return std::pair(begin, begin + static_cast<uintptr_t>(elements * dtype_size(t.dtype())));
  };
  const auto [x_begin, x_end] = range(x);
  const auto [y_begin, y_end] = range(y);
  // Interleaved columns of one matrix: such views share the range but not a byte.
  const bool interleaved = row_stride(x) == row_stride(y) && x.dtype() == y.dtype() &&
                           row_stride(x) >= x.size(1) + y.size(1);
  return x_begin < y_end && y_begin < x_end && !interleaved;
}

GemmProblem check_gemm(const Ctx& ctx, const Tensor& c, const ConstTensor& a, Transpose ta,
                       const ConstTensor& b, Transpose tb, const GemmArgs& args) {
  check_matrix("C", c);
  check_matrix("A", a);
  check_matrix("B", b);
  GemmProblem g;
  g.transpose_a = ta == Transpose::kYes;
  g.transpose_b = tb == Transpose::kYes;
  g.m = a.size(g.transpose_a ? 1 : 0);
  g.k = a.size(g.transpose_a ? 0 : 1);
  g.n = b.size(g.transpose_b ? 0 : 1);
  const int64_t k_of_b = b.size(g.transpose_b ? 1 : 0);
  TRIREME_CHECK(g.k == k_of_b && c.shape() == Shape({g.m, g.n}), "gemm: op(A) is (", g.m, ", ", g.k,
                "), op(B) is (", k_of_b, ", ", g.n, "), C is ", c.shape());
  TRIREME_CHECK(is_float(a.dtype()) && a.dtype() == b.dtype(), "gemm: A is ", a.dtype(), ", B is ",
                b.dtype(), ", expected one float type");
  const bool wider = c.dtype() == DType::kF32 && a.dtype() != DType::kF64;
  TRIREME_CHECK(c.dtype() == a.dtype() || wider, "gemm: C is ", c.dtype(), ", A and B are ",
                a.dtype(), ", expected the same type, or float32 for 16-bit A and B");
  if (args.bias.present()) {
    check_shape("gemm", "bias", args.bias, {g.n});
    check_dtype("gemm", "bias", args.bias, c.dtype());
    check_contiguous("gemm", "bias", args.bias);
    TRIREME_CHECK(!args.accumulate, "gemm: a bias is not supported with accumulate");
  }
  TRIREME_CHECK(ctx.planning() || (!overlap(c, a) && !overlap(c, b)),
                "gemm: C shares memory with A or B");
  g.lda = row_stride(a);
  g.ldb = row_stride(b);
  g.ldc = row_stride(c);
  g.in = a.dtype();
  g.out = c.dtype();
  g.accumulate = args.accumulate;
  g.has_bias = args.bias.present();
  g.alpha = args.alpha;
  g.varying_rows = args.varying_rows;
  return g;
}

void gemm_float64(Ctx& ctx, const GemmProblem& g, const GemmPointers& p) {
  const Activation scratch =
      ctx.allocate("gemm.blocks", DType::kF64,
                   {cpu::kBlockK * (cpu::kBlockN + cpu::kBlockM * int64_t{ctx.threads})});
  if (ctx.planning()) return;
  cpu::BlockedGemm<double> blocked;
  blocked.m = g.m;
  blocked.n = g.n;
  blocked.k = g.k;
  blocked.a = static_cast<const double*>(p.a);
  blocked.a_row = g.transpose_a ? 1 : g.lda;
  blocked.a_column = g.transpose_a ? g.lda : 1;
  blocked.b = static_cast<const double*>(p.b);
  blocked.b_row = g.transpose_b ? 1 : g.ldb;
  blocked.b_column = g.transpose_b ? g.ldb : 1;
  blocked.c = static_cast<double*>(p.c);
  blocked.c_row = g.ldc;
  blocked.bias = static_cast<const double*>(p.bias);
  blocked.alpha = static_cast<double>(g.alpha);
  blocked.accumulate = g.accumulate;
  blocked.scratch = scratch->as<double>();
  TRIREME_KERNEL(gemm_blocked<double>)(blocked, ctx.threads);
}

template <class T>
cpu::Gemv<T> gemv_of(const GemmProblem& g, const GemmPointers& p) {
  cpu::Gemv<T> v;
  v.m = g.m;
  v.n = g.n;
  v.k = g.k;
  v.w = static_cast<const T*>(p.b);
  v.w_stride = g.ldb;
  v.x = static_cast<const T*>(p.a);
  v.x_stride = g.lda;
  v.y = p.c;
  v.y_stride = g.ldc;
  v.y_float32 = g.out == DType::kF32;
  v.bias = p.bias;
  v.alpha = g.alpha;
  v.accumulate = g.accumulate;
  return v;
}

template <class T>
void gemm_streamed(Ctx& ctx, const GemmProblem& g, const GemmPointers& p) {
  if (ctx.planning()) return;
  TRIREME_KERNEL(gemv<T>)(gemv_of<T>(g, p), ctx.threads);
}

// Any number of rows, each with the bits it would have alone.
template <class T>
void gemm_by_rows(Ctx& ctx, const GemmProblem& g, const GemmPointers& p) {
  const Activation packed_x =
      ctx.allocate("gemm.packed_x", DType::kF32, {g.m, cpu::packed_columns(g.k)});
  if (ctx.planning()) return;
  cpu::Gemv<T> v = gemv_of<T>(g, p);
  v.packed_x = packed_x->as<float>();
#if TRIREME_BUILT_AVX512
  if constexpr (std::is_same_v<T, bf16>)
    if (uses_bf16_dots(gemm_processor(*ctx.gemm))) return cpu::avx512::gemm_dot(v, ctx.threads);
#endif
  TRIREME_KERNEL(gemm_rows<T>)(v, ctx.threads);
}

void gemm_by_amx(Ctx& ctx, const GemmProblem& g, const GemmPointers& p) {
  const Activation tiles = ctx.allocate("gemm.tiles", DType::kBF16, {cpu::packed_tiles(g.m, g.k)});
  if (ctx.planning()) return;
  cpu::Gemv<bf16> v = gemv_of<bf16>(g, p);
  v.packed_x = static_cast<float*>(tiles->raw());
#if TRIREME_BUILT_AVX512
  cpu::avx512::gemm_amx(v, ctx.threads);
#else
  TRIREME_CHECK(false, "gemm: AMX in a build without AVX-512");
#endif
}

// Empty sum: C = bias, 0, or unchanged.
void empty_sum(const Ctx& ctx, const GemmProblem& g, const Tensor& c, const GemmArgs& args) {
  if (args.accumulate || ctx.planning()) return;
  if (ctx.gpu != nullptr)
    return cuda::gemm_without_terms(
        *ctx.gpu, g, {.c = c.raw(), .bias = args.bias.present() ? args.bias.raw() : nullptr});
  const auto row_bytes = static_cast<size_t>(c.size(1) * dtype_size(c.dtype()));
  for (int64_t i = 0; i < c.size(0); ++i) {
    std::byte* row = static_cast<std::byte*>(c.raw()) + i * row_stride(c) * dtype_size(c.dtype());
    if (args.bias.present())
      std::memcpy(row, args.bias.raw(), row_bytes);
    else
      std::memset(row, 0, row_bytes);
  }
}

// Every float64 product is batch-invariant: gemm_blocked sums each element in a fixed order.
void check_batch_invariant(const Ctx& ctx, const GemmProblem& g) {
  TRIREME_CHECK(ctx.gpu == nullptr, "gemm: no batch-invariant products on a GPU");
  TRIREME_CHECK(g.in == DType::kF64 || (!g.transpose_a && g.transpose_b),
                "gemm: only products with a weight (N, K) are batch-invariant");
}

GemmPath path_of(const Ctx& ctx, const GemmProblem& g) {
  if (ctx.gemm->batch_invariant) return GemmPath::kFewRows;
  return gemm_path(gemm_processor(*ctx.gemm), g);
}

void gemm_checked(Ctx& ctx, const GemmProblem& g, const Tensor& c, const ConstTensor& a,
                  const ConstTensor& b, const ConstTensor& bias) {
  const GemmPointers p{c.raw(), a.raw(), b.raw(), bias.present() ? bias.raw() : nullptr};
  if (ctx.gemm->batch_invariant) check_batch_invariant(ctx, g);
  if (ctx.gpu != nullptr) {
    if (!ctx.planning()) cuda::gemm(*ctx.gpu, g, p);
    return;
  }
  if (g.in == DType::kF64) return gemm_float64(ctx, g, p);
  switch (path_of(ctx, g)) {
    case GemmPath::kStreamed:
      return g.in == DType::kF32 ? gemm_streamed<float>(ctx, g, p) : gemm_streamed<bf16>(ctx, g, p);
    case GemmPath::kFewRows:
      if (g.in == DType::kF32) return gemm_by_rows<float>(ctx, g, p);
      if (g.in == DType::kBF16) return gemm_by_rows<bf16>(ctx, g, p);
      return gemm_by_rows<f16>(ctx, g, p);
    case GemmPath::kAmx: return gemm_by_amx(ctx, g, p);
    case GemmPath::kLibrary: return library_gemm(ctx, g, p);
    case GemmPath::kWidened:
      return gemm_in_float32(
          ctx, g, c, a, b, bias,
          [&ctx](const GemmProblem& wide, const Tensor& c32, const ConstTensor& a32,
                 const ConstTensor& b32,
                 const ConstTensor& bias32) { gemm_checked(ctx, wide, c32, a32, b32, bias32); });
  }
}

}  // namespace

void gemm(Ctx& ctx, const Tensor& c, const ConstTensor& a, Transpose ta, const ConstTensor& b,
          Transpose tb, const GemmArgs& args) {
  const GemmProblem g = check_gemm(ctx, c, a, ta, b, tb, args);
  if (g.m == 0 || g.n == 0) return;
  if (g.k == 0) return empty_sum(ctx, g, c, args);
  gemm_checked(ctx, g, c, a, b, args.bias);
}

PackedWeight pack_weight(Ctx& ctx, const ConstTensor& w) {
  check_matrix("the weight", w);
  TRIREME_CHECK(is_float(w.dtype()) && w.numel() > 0, "pack_weight: ", w.dtype(), w.shape());
  if (ctx.gpu != nullptr || w.dtype() == DType::kF64) return keep_plain(ctx, w);
  if (library_multiplies(gemm_processor(*ctx.gemm), w.dtype())) return library_pack(ctx, w);
  Ctx own(ctx.threads, "pack_weight");  // setup work: must not become part of a planned step
  return library_pack(own, *widened(own, "pack_weight.w32", w));
}

void linear_forward(Ctx& ctx, const Tensor& y, const ConstTensor& x, const ConstTensor& w,
                    const ConstTensor& bias) {
  const TimeScope timed(ctx.profile, TimeCategory::kGemm);
  gemm(ctx, y, x, Transpose::kNo, w, Transpose::kYes, {.bias = bias});
}

void linear_forward_packed(Ctx& ctx, const Tensor& y, const ConstTensor& x, const PackedWeight& w,
                           const ConstTensor& bias) {
  const TimeScope timed(ctx.profile, TimeCategory::kGemm);
  TRIREME_CHECK(w.present(), "linear_forward_packed: the weight is empty");
  TRIREME_CHECK(is_plain(w) || !ctx.gemm->batch_invariant,
                "linear_forward_packed: products with packed weights are not batch-invariant");
  if (is_plain(w))
    return gemm(ctx, y, x, Transpose::kNo, plain_weight(w), Transpose::kYes, {.bias = bias});
  // Shape and type of the plain weight without data: the checks are those of the plain product.
  const ConstTensor shape_of_w(nullptr, x.dtype(), {w.rows(), w.columns()});
  GemmProblem g =
      check_gemm(ctx, y, x, Transpose::kNo, shape_of_w, Transpose::kYes, {.bias = bias});
  if (g.m == 0) return;
  const auto product = [&](const Tensor& out, const ConstTensor& in, const ConstTensor& b) {
    g.in = in.dtype();
    g.out = out.dtype();
    g.lda = row_stride(in);
    g.ldc = row_stride(out);
    library_gemm_packed(ctx, g, {out.raw(), in.raw(), nullptr, b.present() ? b.raw() : nullptr}, w);
  };
  if (x.dtype() == packed_dtype(w)) return product(y, x, bias);
  TRIREME_CHECK(packed_dtype(w) == DType::kF32, "linear_forward_packed: x is ", x.dtype(),
                ", the weight ", packed_dtype(w));
  const Activation x_f32 = widened(ctx, "gemm.x_f32", x);
  through_float32(ctx, g, y, bias, [&](const Tensor& y32, const ConstTensor& bias32) {
    product(y32, *x_f32, bias32);
  });
}

void linear_backward_input(Ctx& ctx, const Tensor& dx, const ConstTensor& dy, const ConstTensor& w,
                           bool accumulate) {
  const TimeScope timed(ctx.profile, TimeCategory::kGemm);
  gemm(ctx, dx, dy, Transpose::kNo, w, Transpose::kNo, {.accumulate = accumulate});
}

void linear_backward_weight(Ctx& ctx, const Tensor& dw, const ConstTensor& dy, const ConstTensor& x,
                            bool accumulate) {
  const TimeScope timed(ctx.profile, TimeCategory::kGemm);
  gemm(ctx, dw, dy, Transpose::kYes, x, Transpose::kNo, {.accumulate = accumulate});
}

}  // namespace trireme
