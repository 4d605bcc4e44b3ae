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

// sums += products of w and x, in the order that the header gives.
template <class T>
TRIREME_INLINE void add_products(Floats (&sums)[kSums], const T* w, const float* x, int64_t k) {
  int64_t j = 0;
  for (; j + kSums * kLane <= k; j += kSums * kLane)
#pragma GCC unroll 4
    for (int u = 0; u < kSums; ++u) {
      const int64_t at = j + u * kLane;
      sums[u] += load_wide(w + at) * load(x + at);
    }
  for (; j + kLane <= k; j += kLane) sums[0] += load_wide(w + j) * load(x + j);
  if (j < k) sums[0] += load_partial(w + j, k - j) * load_partial(x + j, k - j);
}

TRIREME_INLINE float total(const Floats (&sums)[kSums]) {
  Floats all = sums[0];
  for (int u = 1; u < kSums; ++u) all += sums[u];
  return sum(all);
}

// The weight's rows one after the other.
template <class T, class Out>
void stream(const Gemv<T>& a, int64_t begin, int64_t end) {
  const auto* const bias = static_cast<const Out*>(a.bias);
  for (int64_t j = begin; j < end; ++j) {
    Floats sums[kSums] = {};
    add_products(sums, a.w + j * a.w_stride, a.x32, a.k);
    Out* const y = static_cast<Out*>(a.y) + j;
    float value = total(sums) * a.alpha;
    if (bias != nullptr) value += load_partial(bias + j, 1)[0];
    if (a.accumulate) value += load_partial(y, 1)[0];
    store_partial(y, 1, splat<Floats>(value));
  }
}

}  // namespace

template <class T>
void gemv(const Gemv<T>& a, int threads) {
  for_vectors<float>(a.k, [&a](int64_t j, auto lanes) {
    store_lanes(a.x32 + j, lanes, load_lanes(a.x + j, lanes));
  });
  const int64_t row_bytes = a.k * static_cast<int64_t>(sizeof(T)) + 1;
  parallel_pieces(threads, a.n, kPieceBytes / row_bytes + 1, [&a](int64_t begin, int64_t end) {
    if (a.y_float32)
      stream<T, float>(a, begin, end);
    else
      stream<T, T>(a, begin, end);
  });
}

template void gemv<float>(const Gemv<float>&, int);
template void gemv<bf16>(const Gemv<bf16>&, int);
template void gemv<f16>(const Gemv<f16>&, int);

}  // namespace trireme::cpu::TRIREME_ISA
