#include "engine/ops/cuda/gemm.h"

#include "engine/ops/cuda/blas_lt.h"

namespace trireme::cuda {
namespace {

// On an H200 cuBLASLt takes seven times as long for a product of 16-bit numbers whose columns, or
// terms, are no multiple of 8 (a vocabulary of 50,257), wherever its rows begin. So the multiple of
// the products' tiles is computed first, and the rest apart.
constexpr int64_t kVectorElements = 8, kTile = 64, kWorthCutting = 1024;

int64_t first_part(int64_t size, const GemmProblem& g) {
  const bool narrow = g.in == DType::kBF16 || g.in == DType::kF16;
  const bool cut = narrow && size > kWorthCutting && size % kVectorElements != 0;
  return cut ? size / kTile * kTile : size;
}

template <class P>
P* moved(P* pointer, int64_t elements, DType dtype) {
  using Byte = std::conditional_t<std::is_const_v<P>, const std::byte, std::byte>;
  return pointer != nullptr ? static_cast<Byte*>(pointer) + elements * dtype_size(dtype) : nullptr;
}

// Terms 0 .. k, then those behind them: where C is narrower than its sums, one rounding more.
void multiply_terms(Context& gpu, GemmProblem g, GemmPointers p) {
  auto& blas = static_cast<BlasLt&>(*gpu.blas);
  const int64_t k = g.k, first = first_part(k, g);
  g.k = first;
  blas.multiply(gpu, g, p);
  if (first == k) return;
  g.k = k - first;
  g.accumulate = true;
  g.has_bias = false;
  p.bias = nullptr;
  p.a = moved(p.a, g.transpose_a ? first * g.lda : first, g.in);
  p.b = moved(p.b, g.transpose_b ? first : first * g.ldb, g.in);
  blas.multiply(gpu, g, p);
}

}  // namespace

void gemm(Context& gpu, const GemmProblem& problem, const GemmPointers& p) {
  GemmProblem g = problem;
  g.n = first_part(problem.n, problem);
  multiply_terms(gpu, g, p);
  if (g.n == problem.n) return;
  const int64_t first = g.n;
  g.n = problem.n - first;
  GemmPointers rest = p;
  rest.b = moved(p.b, g.transpose_b ? first * g.ldb : first, g.in);
  rest.c = moved(p.c, first, g.out);
  rest.bias = moved(p.bias, first, g.out);
  multiply_terms(gpu, g, rest);
}

}  // namespace trireme::cuda
