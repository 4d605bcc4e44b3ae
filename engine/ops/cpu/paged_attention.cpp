// One item of work is one query of one head, with an online softmax over blocks of its keys.
#include "engine/ops/cpu/paged_attention.h"

#include <omp.h>

#include "engine/ops/cpu/attention_tile.h"
#include "engine/ops/cpu/load_wide.h"
#include "engine/ops/cpu/vector_loop.h"

namespace trireme::cpu::TRIREME_ISA {
namespace {

constexpr double kLog2E = 1.44269504088896340736;
constexpr int kKeys = 4;  // of which the scores are computed together

// out[i] = dot(q, keys[i]); several at a time hide the latency of the sums, each of which stays one.
template <int N, class T>
TRIREME_INLINE void dots(const compute_t<T>* q, const T* const* keys, int64_t width,
                         compute_t<T>* out) {
  using C = compute_t<T>;
  constexpr int kN = kLanes<C>;
  Vec<C> total[N] = {};
  int64_t d = 0;
  for (; d + kN <= width; d += kN) {
    const Vec<C> query = load(q + d);
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) total[i] += query * load_wide(keys[i] + d);
  }
  if (d < width)  // q is zero behind
    for (int i = 0; i < N; ++i) total[i] += load(q + d) * load_partial(keys[i] + d, width - d);
  for (int i = 0; i < N; ++i) out[i] = sum(total[i]);
}

// sums += the rows' weighted values, in their order; the sums of a few vectors stay in registers.
template <class T>
TRIREME_INLINE void add_rows(compute_t<T>* sums, const compute_t<T>* weights, const T* const* rows,
                             int64_t count, int64_t width) {
  using C = compute_t<T>;
  constexpr int kN = kLanes<C>, kSums = 4;
  int64_t d = 0;
  for (; d + kSums * kN <= width; d += kSums * kN) {
    Vec<C> here[kSums];
#pragma GCC unroll 4
    for (int u = 0; u < kSums; ++u) here[u] = load(sums + d + u * kN);
    for (int64_t j = 0; j < count; ++j)
#pragma GCC unroll 4
      for (int u = 0; u < kSums; ++u) here[u] += load_wide(rows[j] + d + u * kN) * weights[j];
#pragma GCC unroll 4
    for (int u = 0; u < kSums; ++u) store(sums + d + u * kN, here[u]);
  }
  for (; d < width; d += kN) {
    Vec<C> here = load(sums + d);
    for (int64_t j = 0; j < count; ++j)
      here += (d + kN <= width ? load_wide(rows[j] + d) : load_partial(rows[j] + d, width - d)) *
              weights[j];
    store(sums + d, here);
  }
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
    alignas(64) C scores[kBlock];
    const T *k_rows[kBlock], *v_rows[kBlock];
    for (int64_t j = 0; j < keys; ++j) {
      k_rows[j] = row_of(a.k, j0 + j);
      v_rows[j] = row_of(a.v, j0 + j);
    }
    int64_t j = 0;
    for (; j + kKeys <= keys; j += kKeys) dots<kKeys>(query, k_rows + j, a.width, scores + j);
    for (; j < keys; ++j) dots<1>(query, k_rows + j, a.width, scores + j);
    C now = maximum;
    for (j = 0; j < keys; ++j) now = scores[j] > now ? scores[j] : now;
    const C rescale = exp2_scalar<C>(maximum - now);
    maximum = now;
    total *= rescale;
    for (int64_t d = 0; d < a.width; ++d) sums[d] *= rescale;
    for_vectors<C>(keys, [&](int64_t i, auto lanes) {
      store_lanes(scores + i, lanes, fast_exp2_small(load_lanes(scores + i, lanes) - now));
    });
    for (j = 0; j < keys; ++j) total += scores[j];
    add_rows<T>(sums, scores, v_rows, keys, a.width);
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
