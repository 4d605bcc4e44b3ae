#include "engine/core/parallel_for.h"
#include "engine/ops/attention/rotary.kernels.h"
#include "engine/ops/backend/vector_loop.cpu.h"

namespace trireme::cpu::TRIREME_ISA {

namespace {

// Rotates the pairs x[i] and x[i + half].
template <class T, class F = compute_t<T>>
TRIREME_INLINE void rotate_halves(T* x, const F* cosines, const F* sines, int64_t half,
                                  F direction) {
  for_vectors<F>(half, [&](int64_t i, auto lanes) {
    const Vec<F> first = load_lanes(x + i, lanes), second = load_lanes(x + half + i, lanes);
    const Vec<F> cosine = load_lanes(cosines + i, lanes);
    const Vec<F> sine = load_lanes(sines + i, lanes) * direction;
    store_lanes(x + i, lanes, first * cosine - second * sine);
    store_lanes(x + half + i, lanes, second * cosine + first * sine);
  });
}

// Rotates the pairs x[2i] and x[2i + 1].
template <class T, class F = compute_t<T>>
TRIREME_INLINE void rotate_neighbours(T* x, const F* cosines, const F* sines, int64_t half,
                                      F direction) {
  for (int64_t i = 0; i < half; ++i) {
    const F first = static_cast<F>(x[2 * i]), second = static_cast<F>(x[2 * i + 1]);
    const F cosine = cosines[i], sine = sines[i] * direction;
    x[2 * i] = static_cast<T>(first * cosine - second * sine);
    x[2 * i + 1] = static_cast<T>(second * cosine + first * sine);
  }
}

}  // namespace

template <class T>
void rotary(const Rotary<T>& a, int threads) {
  using F = compute_t<T>;
  constexpr int64_t kGrain = 1 << 13;  // elements worth a thread
  const int64_t half = a.width / 2;
  const int64_t grain = kGrain / (a.heads * a.width + 1) + 1;
  parallel_for(threads, a.rows, grain, [&a, half](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const F* cosines = a.cos_sin + a.positions[t] * a.width;
      const F* sines = cosines + half;
      for (int64_t h = 0; h < a.heads; ++h) {
        T* x = a.x + t * a.row_stride + h * a.head_stride;
        if (a.interleaved)
          rotate_neighbours(x, cosines, sines, half, a.direction);
        else
          rotate_halves(x, cosines, sines, half, a.direction);
      }
    }
  });
}

template void rotary<double>(const Rotary<double>&, int);
template void rotary<float>(const Rotary<float>&, int);
template void rotary<bf16>(const Rotary<bf16>&, int);
template void rotary<f16>(const Rotary<f16>&, int);

}  // namespace trireme::cpu::TRIREME_ISA
