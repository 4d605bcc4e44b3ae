#include "engine/ops/backend/elements.cuda.h"
#include "engine/ops/backend/math.cuda.h"
#include "engine/ops/rows/clamped_gate.kernels.h"

namespace trireme::cuda {
namespace {

// One element: operands as the limit leaves them.
template <class T>
struct Clamped {
  using F = compute_t<T>;
  F g, u, sigmoid;
  __device__ Clamped(const cpu::ClampedGateRows<T>& a, F gate, F up)
      : g(gate > a.limit ? a.limit : gate),
        u(up > a.limit    ? a.limit
          : up < -a.limit ? -a.limit
                          : up),
        sigmoid(F{1} / (F{1} + exponential(-g * a.slope))) {}
};

// Item of (rows, packs); the gate's pack is offset by one row of packs per preceding row, and the
// up projection's follows one row later.
template <class T, int N>
struct Forward {
  cpu::ClampedGateRows<T> a;
  T* y;
  const T* gate_up;
  int64_t packs;  // per row of y
  __device__ void operator()(int64_t item) const {
    const int64_t gate = item + quotient(item, packs) * packs;
    auto z = load_pack<T, N>(gate_up, gate);
    const auto up = load_pack<T, N>(gate_up, gate + packs);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const Clamped<T> c(a, to_compute(z.v[i]), to_compute(up.v[i]));
      z.v[i] = static_cast<T>(c.g * c.sigmoid * (c.u + a.up_offset));
    }
    store_pack<T, N>(y, item, z);
  }
};

template <class T, int N>
struct Backward {
  cpu::ClampedGateRows<T> a;
  T* d_gate_up;
  const T *dy, *gate_up;
  int64_t packs;
  __device__ void operator()(int64_t item) const {
    using F = compute_t<T>;
    const int64_t gate = item + quotient(item, packs) * packs;
    const auto dv = load_pack<T, N>(dy, item);
    auto z = load_pack<T, N>(gate_up, gate), up = load_pack<T, N>(gate_up, gate + packs);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const F x = to_compute(z.v[i]), w = to_compute(up.v[i]), d = to_compute(dv.v[i]);
      const Clamped<T> c(a, x, w);
      const F value = c.g * c.sigmoid;
      const F slope = c.sigmoid + value * a.slope * (F{1} - c.sigmoid);
      z.v[i] = static_cast<T>(c.g == x ? d * (c.u + a.up_offset) * slope : F{0});
      up.v[i] = static_cast<T>(c.u == w ? d * value : F{0});
    }
    store_pack<T, N>(d_gate_up, gate, z);
    store_pack<T, N>(d_gate_up, gate + packs, up);
  }
};

}  // namespace

template <class T>
void clamped_gate_forward(Context& gpu, const cpu::ClampedGateRows<T>& a, T* y, const T* gate_up) {
  with_pack<T>(
      a.columns,
      [&]<int N>() {
        const int64_t packs = a.columns / N;
        for_each_item(gpu, "clamped_gate_forward", a.rows * packs,
                      Forward<T, N>{a, y, gate_up, packs});
      },
      y, gate_up);
}

template <class T>
void clamped_gate_backward(Context& gpu, const cpu::ClampedGateRows<T>& a, T* d_gate_up,
                           const T* dy, const T* gate_up) {
  with_pack<T>(
      a.columns,
      [&]<int N>() {
        const int64_t packs = a.columns / N;
        for_each_item(gpu, "clamped_gate_backward", a.rows * packs,
                      Backward<T, N>{a, d_gate_up, dy, gate_up, packs});
      },
      d_gate_up, dy, gate_up);
}

#define TRIREME_INSTANTIATE(T)                                                                   \
  template void clamped_gate_forward<T>(Context&, const cpu::ClampedGateRows<T>&, T*, const T*); \
  template void clamped_gate_backward<T>(Context&, const cpu::ClampedGateRows<T>&, T*, const T*, \
                                         const T*);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cuda
