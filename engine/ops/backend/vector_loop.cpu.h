// One loop body for whole vectors and for the remainder of a range.
//
//   for_vectors<S>(n, [&](int64_t i, auto lanes) {
//     store_lanes(y + i, lanes, load_lanes(x + i, lanes) * scale);
//   });
// calls the body for i = 0, kLanes<S>, ...; `lanes` is Whole except in the last call, where it may
// be the number of remaining elements: loads then pad with zeros and stores write only those
// elements.
#pragma once

#include "engine/ops/backend/simd.cpu.h"

namespace trireme::cpu::TRIREME_ISA {

struct Whole {};

template <class T>
TRIREME_INLINE Vec<compute_t<T>> load_lanes(const T* p, Whole) {
  return load(p);
}
template <class T>
TRIREME_INLINE Vec<compute_t<T>> load_lanes(const T* p, int64_t n) {
  return load_partial(p, n);
}
template <class T>
TRIREME_INLINE void store_lanes(T* p, Whole, Vec<compute_t<T>> v) {
  store(p, v);
}
template <class T>
TRIREME_INLINE void store_lanes(T* p, int64_t n, Vec<compute_t<T>> v) {
  store_partial(p, n, v);
}

// v in the lanes that hold an element of the range, `fill` in the others.
template <class V>
TRIREME_INLINE V valid_lanes(V v, Whole, typename Traits<V>::Scalar = 0) {
  return v;
}
template <class V>
TRIREME_INLINE V valid_lanes(V v, int64_t n, typename Traits<V>::Scalar fill = 0) {
  using S = typename Traits<V>::Scalar;
  return iota<V>() < static_cast<S>(n) ? v : splat<V>(fill);
}

template <class S, class Body>
TRIREME_INLINE void for_vectors(int64_t n, Body&& body) {
  int64_t i = 0;
  for (; i + kLanes<S> <= n; i += kLanes<S>) body(i, Whole{});
  if (i < n) body(i, n - i);
}

TRIREME_INLINE float square_root(float x) { return __builtin_sqrtf(x); }
TRIREME_INLINE double square_root(double x) { return __builtin_sqrt(x); }
template <class S>
TRIREME_INLINE Vec<S> square_roots(Vec<S> x) {
  S lane[kLanes<S>];
  __builtin_memcpy(lane, &x, sizeof x);
  for (int i = 0; i < kLanes<S>; ++i) lane[i] = square_root(lane[i]);  // becomes one instruction
  __builtin_memcpy(&x, lane, sizeof x);
  return x;
}

}  // namespace trireme::cpu::TRIREME_ISA
