#include "engine/ops/norm/dora_magnitude.kernels.h"
#include "engine/ops/rows/column_sums.cpu.h"

namespace trireme::cpu::TRIREME_ISA {
namespace {

constexpr int64_t kGrain = 1 << 13;  // elements worth a thread
constexpr int64_t kTile = 256;       // columns: their intermediates stay in the first-level cache

// m / sqrt(squares), and 1 for a row of norm 0.
template <class F>
TRIREME_INLINE Vec<F> gain(Vec<F> m, Vec<F> squares) {
  return squares > splat<Vec<F>>(F{0}) ? m / square_roots<F>(squares) : splat<Vec<F>>(F{1});
}

template <class T>
compute_t<T> row_squares(const AdaptedRowSquares<T>& a, int64_t row) {
  using F = compute_t<T>;
  F tile[kTile];
  Vec<F> squares{};
  for (int64_t first = 0; first < a.columns; first += kTile) {
    const int64_t n = a.columns - first < kTile ? a.columns - first : kTile;
    for_vectors<F>(n, [&](int64_t c, auto lanes) {
      store_lanes(tile + c, lanes, load_lanes(a.w + row * a.columns + first + c, lanes));
    });
    for (int64_t k = 0; k < a.rank; ++k) {
      const F factor = a.scale * static_cast<F>(a.b[row * a.rank + k]);
      const T* const other = a.a + k * a.columns + first;
      for_vectors<F>(n, [&](int64_t c, auto lanes) {
        store_lanes(tile + c, lanes,
                    load_lanes(tile + c, lanes) + factor * load_lanes(other + c, lanes));
      });
    }
    for_vectors<F>(n, [&](int64_t c, auto lanes) {
      const Vec<F> v = load_lanes(tile + c, lanes);
      squares += v * v;
    });
  }
  return sum(squares);
}

template <class T>
void scale_rows(const ScaleOutputs<T>& a, int64_t begin, int64_t end) {
  using F = compute_t<T>;
  F gains[kTile];
  for (int64_t first = 0; first < a.columns; first += kTile) {
    const int64_t n = a.columns - first < kTile ? a.columns - first : kTile;
    for_vectors<F>(n, [&](int64_t c, auto lanes) {
      Vec<F> g = splat<Vec<F>>(F{1});
      if (a.m != nullptr)
        g = gain<F>(load_lanes(a.m + first + c, lanes), load_lanes(a.squares + first + c, lanes));
      store_lanes(gains + c, lanes, g + a.shift);
    });
    for (int64_t r = begin; r < end; ++r) {
      T* const y = a.y + r * a.y_row + first;
      const T* const x = a.x + r * a.x_row + first;
      for_vectors<F>(n, [&](int64_t c, auto lanes) {
        Vec<F> value = load_lanes(gains + c, lanes) * load_lanes(x + c, lanes);
        if (a.accumulate) value += load_lanes(y + c, lanes);
        store_lanes(y + c, lanes, value);
      });
    }
  }
}

}  // namespace

template <class T>
void adapted_row_squares(const AdaptedRowSquares<T>& a, int threads) {
  parallel_for(threads, a.rows, kGrain / (a.columns * (a.rank + 1) + 1) + 1,
               [&a](int64_t begin, int64_t end) {
                 for (int64_t r = begin; r < end; ++r) a.squares[r] = row_squares(a, r);
               });
}

template <class T>
void scale_outputs(const ScaleOutputs<T>& a, int threads) {
  parallel_for(threads, a.rows, kGrain / (a.columns + 1) + 1,
               [&a](int64_t begin, int64_t end) { scale_rows(a, begin, end); });
}

template <class T>
void magnitude_backward(const MagnitudeBackward<T>& a, int threads) {
  using F = compute_t<T>;
  for_row_blocks(threads, a.blocks, a.rows, a.columns,
                 [&](int64_t block, int64_t begin, int64_t end) {
                   F* total = a.partial + block * a.columns;
                   __builtin_memset(total, 0, static_cast<size_t>(a.columns) * sizeof(F));
                   for (int64_t r = begin; r < end; ++r)
                     for_vectors<F>(a.columns, [&](int64_t c, auto lanes) {
                       const Vec<F> d = load_lanes(a.dy + r * a.dy_row + c, lanes);
                       const Vec<F> u = load_lanes(a.u + r * a.u_row + c, lanes);
                       store_lanes(total + c, lanes, load_lanes(total + c, lanes) + d * u);
                     });
                 });
  for_vectors<F>(a.columns, [&](int64_t c, auto lanes) {
    Vec<F> total{};
    for (int64_t b = 0; b < a.blocks; ++b)
      total += load_lanes(a.partial + b * a.columns + c, lanes);
    const Vec<F> squares = load_lanes(a.squares + c, lanes), none = splat<Vec<F>>(F{0});
    total = squares > none ? total / square_roots<F>(squares) : none;
    if (a.accumulate) total += load_lanes(a.dm + c, lanes);
    store_lanes(a.dm + c, lanes, total);
  });
}

#define TRIREME_INSTANTIATE(T)                                            \
  template void adapted_row_squares<T>(const AdaptedRowSquares<T>&, int); \
  template void scale_outputs<T>(const ScaleOutputs<T>&, int);            \
  template void magnitude_backward<T>(const MagnitudeBackward<T>&, int);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cpu::TRIREME_ISA
