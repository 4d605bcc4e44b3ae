#include "engine/ops/norm/norm.kernels.h"
#include "engine/ops/rows/column_sums.cpu.h"

namespace trireme::cpu::TRIREME_ISA {
namespace {

constexpr int64_t kGrain = 1 << 13;  // elements worth a thread

// Writes h = x + residual if requested and returns the row that is normalized, as stored.
template <class T>
TRIREME_INLINE const T* normalized_row(const NormForward<T>& a, int64_t at) {
  using F = compute_t<T>;
  if (a.h == nullptr) return a.x + at;
  for_vectors<F>(a.columns, [&](int64_t c, auto lanes) {
    const Vec<F> sum = load_lanes(a.x + at + c, lanes) + load_lanes(a.residual + at + c, lanes);
    store_lanes(a.h + at + c, lanes, sum);
  });
  return a.h + at;
}

template <bool kCentered, class T>
void forward_row(const NormForward<T>& a, int64_t row) {
  using F = compute_t<T>;
  const int64_t at = row * a.columns;
  const F count = static_cast<F>(a.columns);
  const T* h = normalized_row(a, at);
  F mean = 0;
  if constexpr (kCentered) {
    Vec<F> total{};
    for_vectors<F>(a.columns, [&](int64_t c, auto lanes) { total += load_lanes(h + c, lanes); });
    mean = sum(total) / count;
    a.mean[row] = mean;
  }
  Vec<F> squares{};
  for_vectors<F>(a.columns, [&](int64_t c, auto lanes) {
    const Vec<F> d = valid_lanes(load_lanes(h + c, lanes) - mean, lanes);
    squares += d * d;
  });
  const F rstd = F{1} / square_root(sum(squares) / count + a.eps);
  a.rstd[row] = rstd;
  for_vectors<F>(a.columns, [&](int64_t c, auto lanes) {
    const Vec<F> scale = load_lanes(a.w + c, lanes) + a.unit;
    Vec<F> y = (load_lanes(h + c, lanes) - mean) * rstd * scale;
    if constexpr (kCentered) y += load_lanes(a.b + c, lanes);
    store_lanes(a.y + at + c, lanes, y);
  });
}

template <bool kCentered, class T>
void forward_rows(const NormForward<T>& a, int threads) {
  parallel_for(threads, a.rows, kGrain / (a.columns + 1) + 1, [&a](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) forward_row<kCentered>(a, row);
  });
}

// With n the normalized row and g = dy (u + w):  dx = rstd (g - mean(g) - n mean(g n)) + dh_in;
// RMSNorm has no mean(g). Adds dy n to dw and dy to db.
template <bool kCentered, class T>
void backward_row(const NormBackward<T>& a, int64_t row, compute_t<T>* dw, compute_t<T>* db) {
  using F = compute_t<T>;
  const int64_t at = row * a.columns;
  const T *dy = a.dy + at, *h = a.h + at;
  const F rstd = a.rstd[row], mean = kCentered ? a.mean[row] : F{0};
  const F inverse_count = F{1} / static_cast<F>(a.columns);
  Vec<F> sum_g{}, sum_gn{};
  for_vectors<F>(a.columns, [&](int64_t c, auto lanes) {
    const Vec<F> d = load_lanes(dy + c, lanes);
    const Vec<F> n = (load_lanes(h + c, lanes) - mean) * rstd;
    const Vec<F> g = d * (load_lanes(a.w + c, lanes) + a.unit);
    sum_gn += g * n;
    store_lanes(dw + c, lanes, load_lanes(dw + c, lanes) + d * n);
    if constexpr (kCentered) {
      sum_g += g;
      store_lanes(db + c, lanes, load_lanes(db + c, lanes) + d);
    }
  });
  const F mean_g = kCentered ? sum(sum_g) * inverse_count : F{0};
  const F mean_gn = sum(sum_gn) * inverse_count;
  for_vectors<F>(a.columns, [&](int64_t c, auto lanes) {
    const Vec<F> n = (load_lanes(h + c, lanes) - mean) * rstd;
    const Vec<F> g = load_lanes(dy + c, lanes) * (load_lanes(a.w + c, lanes) + a.unit);
    Vec<F> dx = rstd * (g - mean_g - n * mean_gn);
    if (a.dh_in != nullptr) dx += load_lanes(a.dh_in + at + c, lanes);
    store_lanes(a.dx + at + c, lanes, dx);
  });
}

template <bool kCentered, class T>
void backward_rows(const NormBackward<T>& a, int threads) {
  using F = compute_t<T>;
  F* const partial_db = a.partial + a.blocks * a.columns;
  for_row_blocks(threads, a.blocks, a.rows, a.columns,
                 [&](int64_t block, int64_t begin, int64_t end) {
                   F* dw = a.partial + block * a.columns;
                   F* db = kCentered ? partial_db + block * a.columns : nullptr;
                   const auto bytes = static_cast<size_t>(a.columns) * sizeof(F);
                   __builtin_memset(dw, 0, bytes);
                   if constexpr (kCentered) __builtin_memset(db, 0, bytes);
                   for (int64_t row = begin; row < end; ++row)
                     backward_row<kCentered>(a, row, dw, db);
                 });
  add_partials(a.dw, a.partial, a.blocks, a.columns, a.accumulate);
  if constexpr (kCentered) add_partials(a.db, partial_db, a.blocks, a.columns, a.accumulate);
}

}  // namespace

template <class T>
void norm_forward(const NormForward<T>& a, int threads) {
  a.mean != nullptr ? forward_rows<true>(a, threads) : forward_rows<false>(a, threads);
}

template <class T>
void norm_backward(const NormBackward<T>& a, int threads) {
  a.mean != nullptr ? backward_rows<true>(a, threads) : backward_rows<false>(a, threads);
}

#define TRIREME_INSTANTIATE(T)                               \
  template void norm_forward<T>(const NormForward<T>&, int); \
  template void norm_backward<T>(const NormBackward<T>&, int);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cpu::TRIREME_ISA
