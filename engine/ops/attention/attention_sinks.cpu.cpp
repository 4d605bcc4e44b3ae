#include "engine/ops/attention/attention_sinks.kernels.h"
#include "engine/ops/rows/column_sums.cpu.h"

namespace trireme::cpu::TRIREME_ISA {
namespace {

TRIREME_INLINE float log_of(float x) { return __builtin_logf(x); }
TRIREME_INLINE double log_of(double x) { return __builtin_log(x); }

template <class F>
TRIREME_INLINE F exp_of(F x) {
  return fast_exp(splat<Vec<F>>(x))[0];
}

// log(exp(a) + exp(b)) of finite numbers.
template <class F>
TRIREME_INLINE F log_sum(F a, F b) {
  const F most = a > b ? a : b, least = a > b ? b : a;
  return most + log_of(F(1) + exp_of(least - most));
}

// dout . out of one head of a token.
template <class T>
compute_t<T> dot_of_head(const SinksBackward<T>& a, int64_t t, int64_t h) {
  using F = compute_t<T>;
  const T* d = a.dout.data + t * a.dout.row + h * a.dout.head;
  const T* out = a.out.data + t * a.out.row + h * a.out.head;
  Vec<F> dot{};
  for_vectors<F>(a.width, [&](int64_t c, auto lanes) {
    dot += load_lanes(d + c, lanes) * load_lanes(out + c, lanes);
  });
  return sum(dot);
}

}  // namespace

template <class T>
void attention_sinks_forward(const SinksForward<T>& a, int threads) {
  using F = compute_t<T>;
  constexpr int64_t kElementsWorthAThread = 1 << 13;
  parallel_for(threads, a.tokens, kElementsWorthAThread / (a.heads * a.width + 1) + 1,
               [&](int64_t begin, int64_t end) {
                 for (int64_t h = 0; h < a.heads; ++h)
                   for (int64_t t = begin; t < end; ++t) {
                     F& lse = a.lse[h * a.tokens + t];
                     if (lse == -F(__builtin_inff())) continue;
                     const F now = log_sum(lse, static_cast<F>(a.sinks[h]));
                     const F factor = exp_of(lse - now);
                     lse = now;
                     T* out = a.out.data + t * a.out.row + h * a.out.head;
                     for_vectors<F>(a.width, [&](int64_t c, auto lanes) {
                       store_lanes(out + c, lanes, load_lanes(out + c, lanes) * factor);
                     });
                   }
               });
}

template <class T>
void attention_sinks_backward(const SinksBackward<T>& a, int threads) {
  using F = compute_t<T>;
  for_row_blocks(threads, a.blocks, a.tokens, a.heads * a.width,
                 [&](int64_t block, int64_t begin, int64_t end) {
                   for (int64_t h = 0; h < a.heads; ++h) {
                     F total = 0;
                     for (int64_t t = begin; t < end; ++t) {
                       const F lse = a.lse[h * a.tokens + t];
                       if (lse == -F(__builtin_inff())) continue;
                       total -= exp_of(static_cast<F>(a.sinks[h]) - lse) * dot_of_head(a, t, h);
                     }
                     a.partial[block * a.heads + h] = total;
                   }
                 });
  add_partials(a.d_sinks, a.partial, a.blocks, a.heads, a.accumulate);
}

#define TRIREME_INSTANTIATE(T)                                           \
  template void attention_sinks_forward<T>(const SinksForward<T>&, int); \
  template void attention_sinks_backward<T>(const SinksBackward<T>&, int);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cpu::TRIREME_ISA
