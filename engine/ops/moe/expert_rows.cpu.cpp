#include "engine/core/parallel_for.h"
#include "engine/ops/backend/vector_loop.cpu.h"
#include "engine/ops/moe/expert_rows.kernels.h"

namespace trireme::cpu::TRIREME_ISA {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements worth a thread

template <class Body>
TRIREME_INLINE void for_rows(int threads, int64_t rows, int64_t columns, Body&& body) {
  parallel_for(threads, rows, kGrain / (columns + 1) + 1, [&body](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) body(row);
  });
}

template <class T>
TRIREME_INLINE compute_t<T> dot(const T* a, const T* b, int64_t columns) {
  using F = compute_t<T>;
  Vec<F> total{};
  for_vectors<F>(columns, [&](int64_t c, auto lanes) {
    total += load_lanes(a + c, lanes) * load_lanes(b + c, lanes);
  });
  return sum(total);
}

}  // namespace

template <class T>
void gather_rows(const GatherRows<T>& a, int threads) {
  const auto bytes = static_cast<size_t>(a.columns) * sizeof(T);
  for_rows(threads, a.rows, a.columns, [&](int64_t q) {
    __builtin_memcpy(static_cast<void*>(a.out + q * a.columns), a.x + a.pairs[q] / a.k * a.columns,
                     bytes);
  });
}

// By vectors of the row, so that the sum over j stays in a register.
template <class T>
void combine_rows(const CombineRows<T>& a, int threads) {
  using F = compute_t<T>;
  for_rows(threads, a.tokens, a.columns * a.k, [&](int64_t t) {
    const int32_t* places = a.places + t * a.k;
    for_vectors<F>(a.columns, [&](int64_t c, auto lanes) {
      Vec<F> total{};
      for (int64_t j = 0; j < a.k; ++j) {
        if (places[j] < 0) continue;
        const Vec<F> row = load_lanes(a.rows + places[j] * a.columns + c, lanes);
        total += a.weights == nullptr ? row : row * a.weights[t * a.k + j];
      }
      store_lanes(a.y + t * a.columns + c, lanes, total);
    });
  });
}

template <class T>
void combine_rows_backward(const CombineRowsBackward<T>& a, int threads) {
  using F = compute_t<T>;
  for_rows(threads, a.tokens, a.columns * a.k, [&](int64_t t) {
    const T* dy = a.dy + t * a.columns;
    for (int64_t i = t * a.k; i < (t + 1) * a.k; ++i) {
      a.d_weights[i] = 0;
      if (a.places[i] < 0) continue;
      const int64_t at = a.places[i] * a.columns;
      a.d_weights[i] = dot(dy, a.rows + at, a.columns);
      const F w = a.weights[i];
      for_vectors<F>(a.columns, [&](int64_t c, auto lanes) {
        store_lanes(a.d_rows + at + c, lanes, load_lanes(dy + c, lanes) * w);
      });
    }
  });
}

template <class T>
void scale_rows(const ScaleRows<T>& a, int threads) {
  using F = compute_t<T>;
  for_rows(threads, a.rows, a.columns, [&](int64_t t) {
    const F gate = a.gate[t];
    T* y = a.y + t * a.columns;
    for_vectors<F>(a.columns, [&](int64_t c, auto lanes) {
      Vec<F> v = load_lanes(a.x + t * a.columns + c, lanes) * gate;
      if (a.accumulate) v += load_lanes(y + c, lanes);
      store_lanes(y + c, lanes, v);
    });
  });
}

template <class T>
void dot_rows(const DotRows<T>& a, int threads) {
  for_rows(threads, a.rows, a.columns,
           [&](int64_t t) { a.out[t] = dot(a.a + t * a.columns, a.b + t * a.columns, a.columns); });
}

#define TRIREME_INSTANTIATE(T)                                                \
  template void gather_rows<T>(const GatherRows<T>&, int);                    \
  template void combine_rows<T>(const CombineRows<T>&, int);                  \
  template void combine_rows_backward<T>(const CombineRowsBackward<T>&, int); \
  template void scale_rows<T>(const ScaleRows<T>&, int);                      \
  template void dot_rows<T>(const DotRows<T>&, int);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cpu::TRIREME_ISA
