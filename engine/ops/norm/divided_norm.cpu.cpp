#include "engine/ops/norm/divided_norm.kernels.h"
#include "engine/ops/rows/column_sums.cpu.h"

namespace trireme::cpu::TRIREME_ISA {
namespace {

// Calls body(t) for each of `rows` rows, in parallel if they are large enough.
template <class Body>
TRIREME_INLINE void for_rows(int threads, int64_t rows, int64_t columns, Body&& body) {
  constexpr int64_t kElementsWorthAThread = 1 << 13;
  parallel_for(threads, rows, kElementsWorthAThread / (columns + 1) + 1,
               [&](int64_t begin, int64_t end) {
                 for (int64_t t = begin; t < end; ++t) body(t);
               });
}

template <class T>
TRIREME_INLINE T* row_of(const StridedRows<T>& rows, int64_t t) {
  return rows.data + t * rows.stride;
}

// Adds a row's part of dw to `dw` and returns its dot product.
template <class T>
compute_t<T> weights_of_row(const DividedNormBackwardWeight<T>& a, int64_t t, compute_t<T>* dw) {
  using F = compute_t<T>;
  const T *x = row_of(a.x, t), *dy = row_of(a.dy, t);
  const F rstd = a.rstd[t];
  Vec<F> dot{};
  for_vectors<F>(a.columns, [&](int64_t c, auto lanes) {
    const Vec<F> dn = load_lanes(dy + c, lanes) * (load_lanes(x + c, lanes) * rstd);
    dot += dn * load_lanes(a.w + c, lanes);
    store_lanes(dw + c, lanes, load_lanes(dw + c, lanes) + dn);
  });
  return sum(dot);
}

}  // namespace

template <class T>
void square_sums(const SquareSums<T>& a, int threads) {
  using F = compute_t<T>;
  for_rows(threads, a.rows, a.columns, [&](int64_t t) {
    const T* x = row_of(a.x, t);
    Vec<F> squares{};
    for_vectors<F>(a.columns, [&](int64_t c, auto lanes) {
      const Vec<F> e = load_lanes(x + c, lanes);
      squares += e * e;
    });
    a.sums[t] = sum(squares);
  });
}

template <class T>
void divided_norm_forward(const DividedNormForward<T>& a, int threads) {
  using F = compute_t<T>;
  for_rows(threads, a.rows, a.columns, [&](int64_t t) {
    const T* x = row_of(a.x, t);
    T* y = row_of(a.y, t);
    const F rstd = F{1} / square_root(a.sums[t] / a.width + a.eps);
    a.rstd[t] = rstd;
    for_vectors<F>(a.columns, [&](int64_t c, auto lanes) {
      store_lanes(y + c, lanes, load_lanes(x + c, lanes) * rstd * load_lanes(a.w + c, lanes));
    });
  });
}

template <class T>
void divided_norm_backward_weight(const DividedNormBackwardWeight<T>& a, int threads) {
  using F = compute_t<T>;
  for_row_blocks(threads, a.blocks, a.rows, a.columns,
                 [&](int64_t block, int64_t begin, int64_t end) {
                   F* dw = a.partial + block * a.columns;
                   __builtin_memset(dw, 0, static_cast<size_t>(a.columns) * sizeof(F));
                   for (int64_t t = begin; t < end; ++t) a.dots[t] = weights_of_row(a, t, dw);
                 });
  add_partials(a.dw, a.partial, a.blocks, a.columns, a.accumulate);
}

template <class T>
void divided_norm_backward_input(const DividedNormBackwardInput<T>& a, int threads) {
  using F = compute_t<T>;
  for_rows(threads, a.rows, a.columns, [&](int64_t t) {
    const T *x = row_of(a.x, t), *dy = row_of(a.dy, t);
    T* dx = row_of(a.dx, t);
    const F rstd = a.rstd[t], mean = a.dots[t] / a.width;
    for_vectors<F>(a.columns, [&](int64_t c, auto lanes) {
      const Vec<F> n = load_lanes(x + c, lanes) * rstd;
      const Vec<F> g = load_lanes(dy + c, lanes) * load_lanes(a.w + c, lanes);
      store_lanes(dx + c, lanes, rstd * (g - n * mean));
    });
  });
}

#define TRIREME_INSTANTIATE(T)                                                             \
  template void square_sums<T>(const SquareSums<T>&, int);                                 \
  template void divided_norm_forward<T>(const DividedNormForward<T>&, int);                \
  template void divided_norm_backward_weight<T>(const DividedNormBackwardWeight<T>&, int); \
  template void divided_norm_backward_input<T>(const DividedNormBackwardInput<T>&, int);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cpu::TRIREME_ISA
