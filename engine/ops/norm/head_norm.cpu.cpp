#include "engine/ops/norm/head_norm.kernels.h"
#include "engine/ops/rows/column_sums.cpu.h"

namespace trireme::cpu::TRIREME_ISA {
namespace {

constexpr int64_t kGrain = 1 << 13;  // elements worth a thread

template <class T>
TRIREME_INLINE T* vector_of(const HeadRows<T>& rows, int64_t v, int64_t heads) {
  return rows.data + v / heads * rows.row + v % heads * rows.head;
}

template <class T>
void forward_vector(const HeadNormForward<T>& a, int64_t v) {
  using F = compute_t<T>;
  const T* x = vector_of(a.x, v, a.heads);
  T* y = vector_of(a.y, v, a.heads);
  Vec<F> squares{};
  for_vectors<F>(a.width, [&](int64_t c, auto lanes) {
    const Vec<F> e = load_lanes(x + c, lanes);
    squares += e * e;
  });
  const F rstd = F{1} / square_root(sum(squares) / static_cast<F>(a.width) + a.eps);
  a.rstd[v] = rstd;
  for_vectors<F>(a.width, [&](int64_t c, auto lanes) {
    store_lanes(y + c, lanes,
                load_lanes(x + c, lanes) * rstd * (load_lanes(a.w + c, lanes) + a.unit));
  });
}

template <class T>
void backward_vector(const HeadNormBackward<T>& a, int64_t v, compute_t<T>* dw) {
  using F = compute_t<T>;
  const T *x = vector_of(a.x, v, a.heads), *dy = vector_of(a.dy, v, a.heads);
  T* dx = vector_of(a.dx, v, a.heads);
  const F rstd = a.rstd[v];
  Vec<F> sum_gn{};
  for_vectors<F>(a.width, [&](int64_t c, auto lanes) {
    const Vec<F> d = load_lanes(dy + c, lanes), n = load_lanes(x + c, lanes) * rstd;
    sum_gn += d * (load_lanes(a.w + c, lanes) + a.unit) * n;
    store_lanes(dw + c, lanes, load_lanes(dw + c, lanes) + d * n);
  });
  const F mean_gn = sum(sum_gn) / static_cast<F>(a.width);
  for_vectors<F>(a.width, [&](int64_t c, auto lanes) {
    const Vec<F> n = load_lanes(x + c, lanes) * rstd;
    const Vec<F> g = load_lanes(dy + c, lanes) * (load_lanes(a.w + c, lanes) + a.unit);
    store_lanes(dx + c, lanes, rstd * (g - n * mean_gn));
  });
}

}  // namespace

template <class T>
void head_norm_forward(const HeadNormForward<T>& a, int threads) {
  parallel_for(threads, a.rows * a.heads, kGrain / (a.width + 1) + 1,
               [&a](int64_t begin, int64_t end) {
                 for (int64_t v = begin; v < end; ++v) forward_vector(a, v);
               });
}

template <class T>
void head_norm_backward(const HeadNormBackward<T>& a, int threads) {
  using F = compute_t<T>;
  for_row_blocks(threads, a.blocks, a.rows, a.heads * a.width,
                 [&](int64_t block, int64_t begin, int64_t end) {
                   F* dw = a.partial + block * a.width;
                   __builtin_memset(dw, 0, static_cast<size_t>(a.width) * sizeof(F));
                   for (int64_t v = begin * a.heads; v < end * a.heads; ++v)
                     backward_vector(a, v, dw);
                 });
  add_partials(a.dw, a.partial, a.blocks, a.width, a.accumulate);
}

#define TRIREME_INSTANTIATE(T)                                        \
  template void head_norm_forward<T>(const HeadNormForward<T>&, int); \
  template void head_norm_backward<T>(const HeadNormBackward<T>&, int);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cpu::TRIREME_ISA
