#include "engine/ops/cpu/gemv.h"

#include "engine/core/parallel_for.h"
#include "engine/ops/cpu/simd.h"

namespace trireme::cpu::TRIREME_ISA {
namespace {

constexpr int64_t kGrainBytes = 1 << 15;  // of weight: less is not worth waking a thread
constexpr int64_t kLane = kLanes<float>;

// out[i] = dot(w, x + i * x_stride) for M rows of x; U independent sums hide the latency of the
// multiply-add.
template <int M, int U, class T>
TRIREME_INLINE void dot_rows(const T* w, const float* x, int64_t x_stride, int64_t k, float* out) {
  Vec<float> sums[M][U] = {};
  int64_t j = 0;
  for (; j + U * kLane <= k; j += U * kLane)
    for (int u = 0; u < U; ++u) {
      const Vec<float> weights = load(w + j + u * kLane);
      for (int i = 0; i < M; ++i) sums[i][u] += weights * load(x + i * x_stride + j + u * kLane);
    }
  for (; j + kLane <= k; j += kLane) {
    const Vec<float> weights = load(w + j);
    for (int i = 0; i < M; ++i) sums[i][0] += weights * load(x + i * x_stride + j);
  }
  if (j < k) {
    const Vec<float> weights = load_partial(w + j, k - j);
    for (int i = 0; i < M; ++i) sums[i][0] += weights * load_partial(x + i * x_stride + j, k - j);
  }
  for (int i = 0; i < M; ++i) {
    Vec<float> total = sums[i][0];
    for (int u = 1; u < U; ++u) total += sums[i][u];
    out[i] = sum(total);
  }
}

template <class Out>
TRIREME_INLINE void finish(Out* y, const Out* bias, float value, bool accumulate) {
  if (bias != nullptr) value += load_partial(bias, 1)[0];
  if (accumulate) value += load_partial(y, 1)[0];
  store_partial(y, 1, splat<Vec<float>>(value));
}

template <int M, class T, class Out>
void rows_of_weight(const Gemv<T>& a, int64_t begin, int64_t end) {
  constexpr int kUnroll = M == 1 ? 4 : M <= 3 ? 2 : 1;
  const auto* bias = static_cast<const Out*>(a.bias);
  for (int64_t j = begin; j < end; ++j) {
    float dots[M];
    dot_rows<M, kUnroll>(a.w + j * a.w_stride, a.x, a.x_stride, a.k, dots);
    for (int i = 0; i < M; ++i)
      finish(static_cast<Out*>(a.y) + i * a.y_stride + j, bias != nullptr ? bias + j : nullptr,
             a.alpha * dots[i], a.accumulate);
  }
}

template <class T, class Out>
void rows_into(const Gemv<T>& a, int64_t begin, int64_t end) {
  switch (a.m) {
    case 1: return rows_of_weight<1, T, Out>(a, begin, end);
    case 2: return rows_of_weight<2, T, Out>(a, begin, end);
    case 3: return rows_of_weight<3, T, Out>(a, begin, end);
    default: return rows_of_weight<4, T, Out>(a, begin, end);
  }
}

}  // namespace

template <class T>
void gemv(const Gemv<T>& a, int threads) {
  const int64_t row_bytes = a.k * static_cast<int64_t>(sizeof(T)) + 1;
  parallel_for(threads, a.n, kGrainBytes / row_bytes + 1, [&](int64_t begin, int64_t end) {
    if (a.y_float32)
      rows_into<T, float>(a, begin, end);
    else
      rows_into<T, T>(a, begin, end);
  });
}

template void gemv<float>(const Gemv<float>&, int);
template void gemv<bf16>(const Gemv<bf16>&, int);

}  // namespace trireme::cpu::TRIREME_ISA
