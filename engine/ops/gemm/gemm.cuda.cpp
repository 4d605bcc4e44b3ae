#include "engine/ops/gemm/gemm.cuda.h"

#include "engine/ops/gemm/blas_lt.cuda.h"
#include "engine/ops/gemm/skinny_gemm.cuda.h"

namespace trireme::cuda {
namespace {

// On an H200 products of 16-bit numbers with 50,257 columns, or terms, take seven times as long as
// those with a multiple of 8, regardless of the rows' alignment (cuBLASLt 13.1; not so for as many
// rows of C). So the multiple of the products' tiles is one product, and the remainder another.
constexpr int64_t kVectorElements = 8, kTile = 64, kWorthCutting = 1024;

int64_t whole_tiles(int64_t size, const GemmProblem& g) {
  const bool narrow = g.in == DType::kBF16 || g.in == DType::kF16;
  const bool cut = narrow && size > kWorthCutting && size % kVectorElements != 0;
  return cut ? size / kTile * kTile : size;
}

template <class P>
P* moved(P* pointer, int64_t elements, DType dtype) {
  using Byte = std::conditional_t<std::is_const_v<P>, const std::byte, std::byte>;
  return pointer != nullptr ? static_cast<Byte*>(pointer) + elements * dtype_size(dtype) : nullptr;
}

// The remainder of the terms comes first: if C is narrower than its sums, the additional rounding
// is that of a few terms.
void multiply_terms(Context& gpu, const GemmProblem& problem, const GemmPointers& p) {
  auto& blas = static_cast<BlasLt&>(*gpu.blas);
  // Terms that are adjacent in no operand need no alignment.
  const bool strided = problem.transpose_a && !problem.transpose_b;
  const int64_t whole = strided ? problem.k : whole_tiles(problem.k, problem);
  GemmProblem g = problem;
  GemmPointers of_whole = p;
  if (whole < problem.k) {
    GemmPointers remainder = p;
    remainder.a = moved(p.a, g.transpose_a ? whole * g.lda : whole, g.in);
    remainder.b = moved(p.b, g.transpose_b ? whole : whole * g.ldb, g.in);
    g.k = problem.k - whole;
    blas.multiply(gpu, g, remainder);
    g.accumulate = true;
    g.has_bias = false;
    of_whole.bias = nullptr;
  }
  g.k = whole;
  blas.multiply(gpu, g, of_whole);
}

}  // namespace

void gemm(Context& gpu, const GemmProblem& problem, const GemmPointers& p) {
  if (is_skinny(problem, p)) return skinny_gemm(gpu, problem, p);
  GemmProblem g = problem;
  const int64_t whole = g.n = whole_tiles(problem.n, problem);
  multiply_terms(gpu, g, p);
  if (whole == problem.n) return;
  g.n = problem.n - whole;
  GemmPointers remainder = p;
  remainder.b = moved(p.b, g.transpose_b ? whole * g.ldb : whole, g.in);
  remainder.c = moved(p.c, whole, g.out);
  remainder.bias = moved(p.bias, whole, g.out);
  multiply_terms(gpu, g, remainder);
}

void gemm_without_terms(Context& gpu, const GemmProblem& problem, const GemmPointers& p) {
  write_bias(gpu, problem, p);
}

GemmAlgorithms algorithms_of(const Context& gpu) {
  const size_t version = blas_lt_functions().cublasLtGetVersion();
  return {.device = gpu.info.name,
          .version =
              concat("cuBLASLt ", version / 10000, ".", version / 100 % 100, ".", version % 100)};
}

void keep_algorithms(Context& gpu, GemmAlgorithms algorithms) {
  static_cast<BlasLt&>(*gpu.blas).kept() = std::move(algorithms);
}

const GemmAlgorithms* kept_algorithms(const Context& gpu) {
  const auto& kept = static_cast<const BlasLt&>(*gpu.blas).kept();
  return kept ? &*kept : nullptr;
}

int64_t blas_plans(const Context& gpu) {
  return static_cast<const BlasLt&>(*gpu.blas).plans_made();
}

}  // namespace trireme::cuda
