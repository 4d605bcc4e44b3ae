#include "engine/core/convert_float.h"
#include "engine/device/mma.h"
#include "engine/ops/backend/kernel.cuda.h"
#include "engine/ops/gemm/skinny_gemm.cuda.h"

namespace trireme::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;
constexpr int kOutputs = 16;  // per block: rows of B in a tensor-core product
constexpr int kRows = 8;      // of A in such a product
static_assert(kMaxSkinnyRows == kRows, "a block computes one tile of rows");
constexpr int kLaneTerms = 8, kTerms = 4 * kLaneTerms;  // per lane and per warp at a time

constexpr int kAhead = 4;  // pieces that a warp loads before it uses the first

using Terms = Pack<uint32_t, kLaneTerms / 2>;  // of one row

template <class T, class O>
struct SkinnyGemm {
  O* c;
  const T* a;
  const T* b;
  const O* bias;
  int64_t m, n, k, lda, ldb, ldc;
  float alpha;
  bool accumulate;
};

template <class T>
__device__ Terms load_terms(const T* row, int64_t k, bool valid) {
  return valid ? *reinterpret_cast<const Terms*>(row + k) : Terms{};
}

// total += 16 rows of B (rows g and g + 8 in `weight`) times 8 rows of A (row g in `x`). The order
// of terms in a sum is free: a lane's eight are those at its position in the fragments of two
// products.
template <class T>
__device__ void multiply_terms(float (&total)[4], const Terms (&weight)[2], const Terms& x) {
#pragma unroll
  for (int i = 0; i < kLaneTerms / 2; i += 2) {
    const uint32_t left[4] = {weight[0].v[i], weight[1].v[i], weight[0].v[i + 1],
                              weight[1].v[i + 1]};
    const uint32_t right[2] = {x.v[i], x.v[i + 1]};
    mma_m16n8k16<T>(total, left, right);
  }
}

// Prefetches the lane's first pieces of the weight into the L2 cache.
template <class T, class O>
__device__ void prefetch_weight(const SkinnyGemm<T, O>& p, int64_t n0) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int g = lane_of_warp() / 4, t = lane_of_warp() % 4;
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    const int64_t k = (warp + i * kWarps) * kTerms + kLaneTerms * t;
    if (k >= p.k) return;
    if (n0 + g < p.n) prefetch_l2(p.b + (n0 + g) * p.ldb + k);
    if (n0 + g + 8 < p.n) prefetch_l2(p.b + (n0 + g + 8) * p.ldb + k);
  }
}

// Partial sums of a warp for a tile of C, over every kWarps-th piece of 32 terms; kAhead pieces are
// loaded before the first is used.
template <class T, class O>
__device__ void add_pieces(float (&total)[4], const SkinnyGemm<T, O>& p, int64_t n0) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int g = lane_of_warp() / 4, t = lane_of_warp() % 4;
  const bool low = n0 + g < p.n, high = n0 + g + 8 < p.n;
  const T* const weight = p.b + (n0 + g) * p.ldb;
  for (int64_t first = warp * kTerms; first < p.k; first += kAhead * kWarps * kTerms) {
    Terms w[kAhead][2];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int64_t k = first + i * kWarps * kTerms + kLaneTerms * t;
      w[i][0] = load_terms(weight, k, low && k < p.k);
      w[i][1] = load_terms(weight + 8 * p.ldb, k, high && k < p.k);
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int64_t k = first + i * kWarps * kTerms + kLaneTerms * t;
      multiply_terms<T>(total, w[i], load_terms(p.a + g * p.lda, k, g < p.m && k < p.k));
    }
  }
}

template <class T, class O>
__global__ void __launch_bounds__(kThreads, 2) skinny_gemm_kernel(SkinnyGemm<T, O> p) {
  const int64_t n0 = static_cast<int64_t>(blockIdx.x) * kOutputs;
  begin_kernel([&] { prefetch_weight(p, n0); });
  __shared__ float shared[kWarps][kOutputs][kRows];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int g = lane_of_warp() / 4, t = lane_of_warp() % 4;
  float total[4] = {};
  add_pieces(total, p, n0);
#pragma unroll
  for (int e = 0; e < 4; ++e) shared[warp][g + e / 2 * 8][2 * t + e % 2] = total[e];
  __syncthreads();
  for (int at = static_cast<int>(threadIdx.x); at < kOutputs * kRows; at += kThreads) {
    const int output = at % kOutputs, m = at / kOutputs;
    const int64_t n = n0 + output;
    if (n >= p.n || m >= p.m) continue;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kWarps; ++i) sum += shared[i][output][m];
    O* const c = p.c + m * p.ldc + n;
    sum *= p.alpha;
    if (p.accumulate) sum += static_cast<float>(*c);
    if (p.bias != nullptr) sum += static_cast<float>(p.bias[n]);
    *c = convert_float<O>(sum);
  }
}

template <class T, class O>
void start(Context& gpu, const GemmProblem& g, const GemmPointers& p) {
  const SkinnyGemm<T, O> args{.c = static_cast<O*>(p.c),
                              .a = static_cast<const T*>(p.a),
                              .b = static_cast<const T*>(p.b),
                              .bias = static_cast<const O*>(p.bias),
                              .m = g.m,
                              .n = g.n,
                              .k = g.k,
                              .lda = g.lda,
                              .ldb = g.ldb,
                              .ldc = g.ldc,
                              .alpha = g.alpha,
                              .accumulate = g.accumulate};
  launch(gpu, "skinny_gemm", skinny_gemm_kernel<T, O>,
         {.blocks = {blocks_for(g.n, kOutputs)}, .threads = kThreads}, args);
}

template <class T>
void start(Context& gpu, const GemmProblem& g, const GemmPointers& p) {
  g.out == DType::kF32 ? start<T, float>(gpu, g, p) : start<T, T>(gpu, g, p);
}

bool has_whole_packs(const void* pointer, int64_t rows, int64_t stride) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0 && (rows == 1 || stride % kLaneTerms == 0);
}

}  // namespace

bool is_skinny(const GemmProblem& g, const GemmPointers& p) {
  return (g.in == DType::kBF16 || g.in == DType::kF16) && g.m <= kMaxSkinnyRows && !g.transpose_a &&
         g.transpose_b && g.k % kLaneTerms == 0 && has_whole_packs(p.a, g.m, g.lda) &&
         has_whole_packs(p.b, g.n, g.ldb);
}

void skinny_gemm(Context& gpu, const GemmProblem& g, const GemmPointers& p) {
  g.in == DType::kBF16 ? start<bf16>(gpu, g, p) : start<f16>(gpu, g, p);
}

}  // namespace trireme::cuda
