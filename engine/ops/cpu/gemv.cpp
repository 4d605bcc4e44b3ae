#include "engine/ops/cpu/gemv.h"

#include "engine/core/parallel_for.h"
#include "engine/ops/cpu/load_wide.h"
#include "engine/ops/cpu/vector_loop.h"

namespace trireme::cpu::TRIREME_ISA {
namespace {

constexpr int64_t kPieceBytes = 1 << 16;  // of weight: less is not worth waking a thread
constexpr int64_t kLane = kLanes<float>;
constexpr int kSums = 4;  // independent ones of a row: they hide the latency of the multiply-add
using Floats = Vec<float>;

// sums[i] += products of w and row i of x, in the order that the header gives.
template <int M, class T>
TRIREME_INLINE void add_products(Floats (&sums)[M][kSums], const T* w, const float* x,
                                 int64_t x_stride, int64_t k) {
  int64_t j = 0;
  for (; j + kSums * kLane <= k; j += kSums * kLane)
#pragma GCC unroll 4
    for (int u = 0; u < kSums; ++u) {
      const Floats weights = load_wide(w + j + u * kLane);
#pragma GCC unroll 6
      for (int i = 0; i < M; ++i) sums[i][u] += weights * load(x + i * x_stride + j + u * kLane);
    }
  for (; j + kLane <= k; j += kLane) {
    const Floats weights = load_wide(w + j);
    for (int i = 0; i < M; ++i) sums[i][0] += weights * load(x + i * x_stride + j);
  }
  if (j < k) {
    const Floats weights = load_partial(w + j, k - j);
    for (int i = 0; i < M; ++i) sums[i][0] += weights * load_partial(x + i * x_stride + j, k - j);
  }
}

TRIREME_INLINE float total(const Floats (&sums)[kSums]) {
  Floats all = sums[0];
  for (int u = 1; u < kSums; ++u) all += sums[u];
  return sum(all);
}

template <class T, class Out>
TRIREME_INLINE void finish(const Gemv<T>& a, int64_t i, int64_t j, float value) {
  value *= a.alpha;
  Out* const y = static_cast<Out*>(a.y) + i * a.y_stride + j;
  if (a.bias != nullptr) value += load_partial(static_cast<const Out*>(a.bias) + j, 1)[0];
  if (a.accumulate) value += load_partial(y, 1)[0];
  store_partial(y, 1, splat<Floats>(value));
}

// The weight's rows one after the other.
template <int M, class T, class Out>
void stream(const Gemv<T>& a, int64_t begin, int64_t end) {
  for (int64_t j = begin; j < end; ++j) {
    Floats sums[M][kSums] = {};
    add_products<M>(sums, a.w + j * a.w_stride, a.x32, gemv_stride(a.k), a.k);
    for (int i = 0; i < M; ++i) finish<T, Out>(a, i, j, total(sums[i]));
  }
}

template <class T, class Out>
void rows_into(const Gemv<T>& a, int64_t begin, int64_t end) {
  switch (a.m) {
    case 1: return stream<1, T, Out>(a, begin, end);
    case 2: return stream<2, T, Out>(a, begin, end);
#if !defined(TRIREME_ISA_avx512)
    default: return stream<kGemvRows, T, Out>(a, begin, end);
#else
    case 3: return stream<3, T, Out>(a, begin, end);
    case 4: return stream<4, T, Out>(a, begin, end);
    case 5: return stream<5, T, Out>(a, begin, end);
    default: return stream<kGemvRowsOfAvx512, T, Out>(a, begin, end);
#endif
  }
}

// x in float32.
template <class T>
void widen(const Gemv<T>& a, int threads) {
  constexpr int64_t kGrain = 1 << 14;  // elements worth a thread
  parallel_for(threads, a.m, kGrain / (a.k + 1) + 1, [&a](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      for_vectors<float>(a.k, [&](int64_t j, auto lanes) {
        store_lanes(a.x32 + i * gemv_stride(a.k) + j, lanes,
                    load_lanes(a.x + i * a.x_stride + j, lanes));
      });
  });
}

}  // namespace

template <class T>
void gemv(const Gemv<T>& a, int threads) {
  widen(a, threads);
  const int64_t row_bytes = a.k * static_cast<int64_t>(sizeof(T)) + 1;
  parallel_pieces(threads, a.n, kPieceBytes / row_bytes + 1, [&a](int64_t begin, int64_t end) {
    if (a.y_float32)
      rows_into<T, float>(a, begin, end);
    else
      rows_into<T, T>(a, begin, end);
  });
}

template void gemv<float>(const Gemv<float>&, int);
template void gemv<bf16>(const Gemv<bf16>&, int);
template void gemv<f16>(const Gemv<f16>&, int);

}  // namespace trireme::cpu::TRIREME_ISA
