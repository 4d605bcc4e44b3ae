#include "engine/core/parallel_for.h"
#include "engine/ops/backend/vector_loop.cpu.h"
#include "engine/ops/optimizer/flat_norm.kernels.h"

namespace trireme::cpu::TRIREME_ISA {
namespace {

// body(block, first element, number of elements)
template <class Body>
TRIREME_INLINE void for_blocks(int threads, int64_t n, Body&& body) {
  const int64_t blocks = (n + kSquaresBlock - 1) / kSquaresBlock;
  parallel_for(threads, blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t at = b * kSquaresBlock;
      body(b, at, n - at < kSquaresBlock ? n - at : kSquaresBlock);
    }
  });
}

// Adds the squares of a vector to two vectors of float64: each square of a float is exact there.
TRIREME_INLINE void add_squares(Vec<double> (&total)[2], Vec<float> v) {
  typedef float Half __attribute__((vector_size(kVectorBytes / 2)));
  Half half[2];
  __builtin_memcpy(half, &v, sizeof v);
  for (int i = 0; i < 2; ++i) {
    const auto x = __builtin_convertvector(half[i], Vec<double>);
    total[i] += x * x;
  }
}
TRIREME_INLINE void add_squares(Vec<double> (&total)[2], Vec<double> v) { total[0] += v * v; }

}  // namespace

template <class T>
void squares(double* partial, const T* x, int64_t n, int threads) {
  using F = compute_t<T>;
  for_blocks(threads, n, [&](int64_t block, int64_t at, int64_t count) {
    Vec<double> total[2] = {};
    for_vectors<F>(
        count, [&](int64_t i, auto lanes) { add_squares(total, load_lanes(x + at + i, lanes)); });
    partial[block] = sum(total[0] + total[1]);
  });
}

template <class T>
void find_non_finite(int64_t* first, const T* x, int64_t n, int threads) {
  using F = compute_t<T>;
  for_blocks(threads, n, [&](int64_t, int64_t at, int64_t count) {
    Vec<F> zero{};  // x * 0 is 0 for finite x and NaN otherwise, and NaN stays in the sum
    for_vectors<F>(count,
                   [&](int64_t i, auto lanes) { zero += load_lanes(x + at + i, lanes) * F(0); });
    if (sum(zero) == F(0)) return;
    int64_t found = at;
    for (F value = static_cast<F>(x[found]); value - value == F(0);)
      value = static_cast<F>(x[++found]);
    int64_t before = __atomic_load_n(first, __ATOMIC_RELAXED);
    while (found < before && !__atomic_compare_exchange_n(first, &before, found, true,
                                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
  });
}

#define TRIREME_INSTANTIATE(T)                               \
  template void squares<T>(double*, const T*, int64_t, int); \
  template void find_non_finite<T>(int64_t*, const T*, int64_t, int);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cpu::TRIREME_ISA
