#include "engine/ops/backend/vector_loop.cpu.h"
#include "engine/ops/compression/orthonormal_rows.kernels.h"

namespace trireme::cpu::TRIREME_ISA {
namespace {

template <class T>
TRIREME_INLINE T dot(const T* a, const T* b, int64_t n) {
  Vec<T> total{};
  for_vectors<T>(n, [&](int64_t i, auto lanes) {
    total = multiply_add(load_lanes(a + i, lanes), load_lanes(b + i, lanes), total);
  });
  return sum(total);
}

template <class T>
TRIREME_INLINE T largest_magnitude(const T* x, int64_t n) {
  T largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const T magnitude = x[i] < 0 ? -x[i] : x[i];
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

template <class T>
TRIREME_INLINE void scale(T* x, T factor, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = factor == 0 ? T(0) : x[i] * factor;
}

// y += factor x
template <class T>
TRIREME_INLINE void add_multiple(T* y, const T* x, T factor, int64_t n) {
  for_vectors<T>(n, [&](int64_t i, auto lanes) {
    store_lanes(
        y + i, lanes,
        multiply_add(load_lanes(x + i, lanes), splat<Vec<T>>(factor), load_lanes(y + i, lanes)));
  });
}

}  // namespace

template <class T>
void orthonormal_rows(T* y, int64_t rows, int64_t n) {
  for (int64_t i = 0; i < rows; ++i) {
    T* const row = y + i * n;
    scale(row, unit_factor(largest_magnitude(row, n)), n);
    const T before = dot(row, row, n);
    for (int pass = 0; pass < 2; ++pass)
      for (int64_t j = 0; j < i; ++j) add_multiple(row, y + j * n, -dot(row, y + j * n, n), n);
    const T after = dot(row, row, n);
    const T factor = after > before * kDependent<T> ? T(1) / square_root(after) : T(0);
    scale(row, factor, n);
  }
}

template <class T>
void copy_nonzero_rows(T* y, const T* x, int64_t rows, int64_t n) {
  for (int64_t i = 0; i < rows; ++i) {
    const T* const row = x + i * n;
    const T largest = largest_magnitude(row, n);
    bool finite = true;
    for (int64_t k = 0; k < n; ++k) finite = finite && row[k] - row[k] == 0;
    if (finite && largest > 0) __builtin_memcpy(y + i * n, row, static_cast<size_t>(n) * sizeof(T));
  }
}

#define TRIREME_INSTANTIATE(T)                             \
  template void orthonormal_rows<T>(T*, int64_t, int64_t); \
  template void copy_nonzero_rows<T>(T*, const T*, int64_t, int64_t);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)

}  // namespace trireme::cpu::TRIREME_ISA
