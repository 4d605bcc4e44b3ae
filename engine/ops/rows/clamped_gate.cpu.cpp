#include "engine/core/parallel_for.h"
#include "engine/ops/backend/vector_loop.cpu.h"
#include "engine/ops/rows/clamped_gate.kernels.h"

namespace trireme::cpu::TRIREME_ISA {
namespace {

// Calls body(row, column, lanes) for the vectors of all rows, in parallel if there are enough.
template <class T, class Body>
TRIREME_INLINE void for_row_vectors(const ClampedGateRows<T>& a, int threads, Body&& body) {
  constexpr int64_t kElementsWorthAThread = 1 << 12;
  parallel_for(threads, a.rows, kElementsWorthAThread / (a.columns + 1) + 1,
               [&](int64_t begin, int64_t end) {
                 for (int64_t r = begin; r < end; ++r)
                   for_vectors<compute_t<T>>(a.columns,
                                             [&](int64_t c, auto lanes) { body(r, c, lanes); });
               });
}

template <class V, class F>
TRIREME_INLINE V at_most(V x, F limit) {
  return x > splat<V>(limit) ? splat<V>(limit) : x;
}
template <class V, class F>
TRIREME_INLINE V within(V x, F limit) {
  x = at_most(x, limit);
  return x < splat<V>(-limit) ? splat<V>(-limit) : x;
}

}  // namespace

template <class T>
void clamped_gate_forward(const ClampedGateRows<T>& a, T* y, const T* gate_up, int threads) {
  using V = Vec<compute_t<T>>;
  for_row_vectors(a, threads, [=](int64_t r, int64_t c, auto lanes) {
    const T* gate = gate_up + 2 * r * a.columns + c;
    const V g = at_most(V(load_lanes(gate, lanes)), a.limit);
    const V u = within(V(load_lanes(gate + a.columns, lanes)), a.limit);
    store_lanes(y + r * a.columns + c, lanes, g * fast_sigmoid(g * a.slope) * (u + a.up_offset));
  });
}

template <class T>
void clamped_gate_backward(const ClampedGateRows<T>& a, T* d_gate_up, const T* dy, const T* gate_up,
                           int threads) {
  using F = compute_t<T>;
  using V = Vec<F>;
  for_row_vectors(a, threads, [=](int64_t r, int64_t c, auto lanes) {
    const int64_t at = 2 * r * a.columns + c;
    const V z = load_lanes(gate_up + at, lanes), up = load_lanes(gate_up + at + a.columns, lanes);
    const V d = load_lanes(dy + r * a.columns + c, lanes);
    const V g = at_most(z, a.limit), u = within(up, a.limit);
    const V s = fast_sigmoid(g * a.slope), value = g * s;
    const V slope = s + value * a.slope * (F(1) - s);
    store_lanes(d_gate_up + at, lanes, g == z ? d * (u + a.up_offset) * slope : V{});
    store_lanes(d_gate_up + at + a.columns, lanes, u == up ? d * value : V{});
  });
}

#define TRIREME_INSTANTIATE(T)                                                         \
  template void clamped_gate_forward<T>(const ClampedGateRows<T>&, T*, const T*, int); \
  template void clamped_gate_backward<T>(const ClampedGateRows<T>&, T*, const T*, const T*, int);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cpu::TRIREME_ISA
