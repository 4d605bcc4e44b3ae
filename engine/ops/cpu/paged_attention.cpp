// One item of work is one query of one head, with an online softmax over blocks of its keys.
#include "engine/ops/cpu/paged_attention.h"

#include <omp.h>

#include "engine/ops/cpu/attention_tile.h"

namespace trireme::cpu::TRIREME_ISA {
namespace {

constexpr double kLog2E = 1.44269504088896340736;

template <class T>
compute_t<T> dot(const compute_t<T>* q, const T* k, int64_t width) {
  using C = compute_t<T>;
  constexpr int kN = kLanes<C>;
  Vec<C> total{};
  int64_t d = 0;
  for (; d + kN <= width; d += kN) total += load(q + d) * load(k + d);
  if (d < width) total += load(q + d) * load_partial(k + d, width - d);  // q is zero behind
  return sum(total);
}

// sums += weight * v.
template <class T>
void add_row(compute_t<T>* sums, compute_t<T> weight, const T* v, int64_t width) {
  using C = compute_t<T>;
  constexpr int kN = kLanes<C>;
  int64_t d = 0;
  for (; d + kN <= width; d += kN) store(sums + d, load(sums + d) + load(v + d) * weight);
  if (d < width) store(sums + d, load(sums + d) + load_partial(v + d, width - d) * weight);
}

template <class C>
TRIREME_INLINE C exp2_scalar(C x) {
  return fast_exp2_small(splat<Vec<C>>(x))[0];
}

template <class T>
void attend(const PagedAttention<T>& a, int64_t n, int64_t t, int64_t head) {
  using C = compute_t<T>;
  const int64_t kv_head = head / (a.heads / a.kv_heads);
  const int64_t end = a.lengths[n] - (a.cu_q[n + 1] - 1 - t);
  const int64_t begin = a.window > 0 ? larger(0, end - a.window) : 0;
  alignas(64) C query[kWidestPagedHead + kWidestVector] = {};
  alignas(64) C sums[kWidestPagedHead + kWidestVector] = {};
  const T* q = a.q.data + t * a.q.row + head * a.q.head;
  for (int64_t d = 0; d < a.width; ++d)
    query[d] = static_cast<C>(q[d]) * static_cast<C>(static_cast<double>(a.scale) * kLog2E);
  const auto row_of = [&](const T* pool, int64_t j) {
    const int64_t block = a.table[n * a.most_blocks + j / a.block_size];
    return pool + ((block * a.kv_heads + kv_head) * a.block_size + j % a.block_size) * a.width;
  };
  C maximum = -__builtin_inff(), total = 0;
  for (int64_t j0 = begin; j0 < end; j0 += kBlock) {
    const int64_t keys = smaller(kBlock, end - j0);
    C scores[kBlock], now = maximum;
    for (int64_t j = 0; j < keys; ++j) {
      scores[j] = dot<T>(query, row_of(a.k, j0 + j), a.width);
      now = scores[j] > now ? scores[j] : now;
    }
    const C rescale = exp2_scalar<C>(maximum - now);
    maximum = now;
    total *= rescale;
    for (int64_t d = 0; d < a.width; ++d) sums[d] *= rescale;
    for (int64_t j = 0; j < keys; ++j) {
      const C p = exp2_scalar<C>(scores[j] - now);
      total += p;
      add_row<T>(sums, p, row_of(a.v, j0 + j), a.width);
    }
  }
  T* out = a.out.data + t * a.out.row + head * a.out.head;
  const C factor = total == 0 ? C(0) : C(1) / total;
  for (int64_t d = 0; d < a.width; ++d) out[d] = static_cast<T>(sums[d] * factor);
}

}  // namespace

template <class T>
void paged_attention(const PagedAttention<T>& a, int threads) {
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1) if (a.sequences * a.heads > 1)
  for (int64_t item = 0; item < a.sequences * a.heads; ++item) {
    const int64_t n = item / a.heads;
    for (int64_t t = a.cu_q[n]; t < a.cu_q[n + 1]; ++t) attend(a, n, t, item % a.heads);
  }
  zero_rows(a.out, a.cu_q[a.sequences], a.tokens, a.heads, a.width);
}

template void paged_attention<double>(const PagedAttention<double>&, int);
template void paged_attention<float>(const PagedAttention<float>&, int);
template void paged_attention<bf16>(const PagedAttention<bf16>&, int);
template void paged_attention<f16>(const PagedAttention<f16>&, int);

}  // namespace trireme::cpu::TRIREME_ISA
