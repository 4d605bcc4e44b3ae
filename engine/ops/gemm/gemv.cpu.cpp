#include "engine/ops/gemm/gemv.cpu.h"

#include "engine/core/parallel_for.h"
#include "engine/ops/backend/steps.cpu.h"

namespace trireme::cpu::TRIREME_ISA {
namespace {

constexpr int64_t kPieceBytes = 1 << 16;  // of weight: less is not worth waking a thread
constexpr int kSums = 8;  // independent ones, to hide the latency of the multiply-add
using Floats = Vec<float>;

template <class T>
TRIREME_INLINE void add_step(Floats& first, Floats& second, const T* w, const T* x) {
  const Step of_w = load_step(w), of_x = load_step(x);
  first = multiply_add(of_w.first, of_x.first, first);
  second = multiply_add(of_w.second, of_x.second, second);
}

// Sum of products of w and x, in the order given in the header. rest: the part of x after its last
// whole step.
template <class T>
TRIREME_INLINE float dot(const T* w, const T* x, const T (&rest)[kStep], int64_t k) {
  Floats sums[kSums] = {};
  int64_t j = 0;
  for (; j + kSums / 2 * kStep <= k; j += kSums / 2 * kStep)
#pragma GCC unroll 4
    for (int u = 0; u < kSums; u += 2)
      add_step(sums[u], sums[u + 1], w + j + u / 2 * kStep, x + j + u / 2 * kStep);
  for (; j + kStep <= k; j += kStep) add_step(sums[0], sums[1], w + j, x + j);
  if (j < k) {
    T rest_of_w[kStep];
    pad_step(rest_of_w, w + j, k - j);
    add_step(sums[0], sums[1], rest_of_w, rest);
  }
  return sum(((sums[0] + sums[1]) + (sums[2] + sums[3])) +
             ((sums[4] + sums[5]) + (sums[6] + sums[7])));
}

// The weight's rows in sequence.
template <class T, class Out>
void stream(const Gemv<T>& a, int64_t begin, int64_t end) {
  const auto* const bias = static_cast<const Out*>(a.bias);
  T rest[kStep];
  const int64_t whole = a.k / kStep * kStep;
  pad_step(rest, a.x + whole, a.k - whole);
  for (int64_t j = begin; j < end; ++j) {
    Out* const y = static_cast<Out*>(a.y) + j;
    float value = dot(a.w + j * a.w_stride, a.x, rest, a.k) * a.alpha;
    if (bias != nullptr) value += load_partial(bias + j, 1)[0];
    if (a.accumulate) value += load_partial(y, 1)[0];
    store_partial(y, 1, splat<Floats>(value));
  }
}

}  // namespace

template <class T>
void gemv(const Gemv<T>& a, int threads) {
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

}  // namespace trireme::cpu::TRIREME_ISA
