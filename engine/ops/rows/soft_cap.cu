#include "engine/ops/backend/elements.cuda.h"
#include "engine/ops/backend/math.cuda.h"
#include "engine/ops/rows/soft_cap.kernels.h"

namespace trireme::cuda {
namespace {

template <class T, int N>
struct Forward {
  T* y;
  const T* x;
  compute_t<T> cap;
  __device__ void operator()(int64_t item) const {
    auto e = load_pack<T, N>(x, item);
#pragma unroll
    for (int i = 0; i < N; ++i)
      e.v[i] = static_cast<T>(cap * hyperbolic_tangent(to_compute(e.v[i]) / cap));
    store_pack<T, N>(y, item, e);
  }
};

template <class T, int N>
struct Backward {
  T* d;
  const compute_t<T>* y;
  compute_t<T> cap;
  __device__ void operator()(int64_t item) const {
    using F = compute_t<T>;
    auto e = load_pack<T, N>(d, item);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const F t = y[item * N + i] / cap;
      e.v[i] = static_cast<T>(to_compute(e.v[i]) * (F{1} - t * t));
    }
    store_pack<T, N>(d, item, e);
  }
};

}  // namespace

template <class T>
void soft_cap_forward(Context& gpu, T* y, const T* x, int64_t n, compute_t<T> cap) {
  with_pack<T>(
      n,
      [&]<int N>() {
        for_each_item(gpu, "soft_cap_forward", n / N, Forward<T, N>{y, x, cap});
      },
      y, x);
}

template <class T>
void soft_cap_backward(Context& gpu, T* d, const compute_t<T>* y, int64_t n, compute_t<T> cap) {
  with_pack<T>(
      n,
      [&]<int N>() {
        for_each_item(gpu, "soft_cap_backward", n / N, Backward<T, N>{d, y, cap});
      },
      d);
}

#define TRIREME_INSTANTIATE(T)                                                      \
  template void soft_cap_forward<T>(Context&, T*, const T*, int64_t, compute_t<T>); \
  template void soft_cap_backward<T>(Context&, T*, const compute_t<T>*, int64_t, compute_t<T>);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cuda
