#include "engine/ops/attention/latent_heads.kernels.h"
#include "engine/ops/backend/elements.cuda.h"

namespace trireme::cuda {
namespace {

// Item of (tokens, heads, packs of D): the same elements of the key and of the value. Sizes below
// are in packs.
template <class T, int N>
struct Expand {
  cpu::LatentHeadsForward<T> a;
  cpu::LatentSizes s;
  __device__ void operator()(int64_t item) const {
    const int64_t width = s.nope + s.rope;
    const int64_t head = quotient(item, width), d = item - head * width;
    const int64_t from = head * (s.nope + s.value);
    const int64_t token = quotient(head, s.heads);
    const auto key = d < s.nope ? load_pack<T, N>(a.kv, from + d)
                                : load_pack<T, N>(a.k_rope, token * s.rope + d - s.nope);
    store_pack<T, N>(a.k, item, key);
    Pack<T, N> value;
    if (d < s.value) {
      value = load_pack<T, N>(a.kv, from + s.nope + d);
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) value.v[i] = static_cast<T>(0.0f);
    }
    store_pack<T, N>(a.v, item, value);
  }
};

// Item of (tokens, heads, packs of Dn + Dv).
template <class T, int N>
struct Collect {
  cpu::LatentHeadsBackward<T> a;
  cpu::LatentSizes s;
  __device__ void operator()(int64_t item) const {
    const int64_t both = s.nope + s.value;
    const int64_t head = quotient(item, both), d = item - head * both;
    const int64_t from = head * (s.nope + s.rope);
    store_pack<T, N>(
        a.d_kv, item,
        d < s.nope ? load_pack<T, N>(a.dk, from + d) : load_pack<T, N>(a.dv, from + d - s.nope));
  }
};

// Item of (tokens, packs of Dr): the sum over the heads.
template <class T, int N>
struct SumHeads {
  cpu::LatentHeadsBackward<T> a;
  cpu::LatentSizes s;
  __device__ void operator()(int64_t item) const {
    using F = compute_t<T>;
    const int64_t width = s.nope + s.rope;
    const int64_t token = quotient(item, s.rope), d = item - token * s.rope;
    Pack<F, N> sum{};
    for (int64_t h = 0; h < s.heads; ++h) {
      const auto term = load_pack<T, N>(a.dk, (token * s.heads + h) * width + s.nope + d);
#pragma unroll
      for (int i = 0; i < N; ++i) sum.v[i] += to_compute(term.v[i]);
    }
    Pack<T, N> out;
#pragma unroll
    for (int i = 0; i < N; ++i) out.v[i] = static_cast<T>(sum.v[i]);
    store_pack<T, N>(a.d_k_rope, item, out);
  }
};

template <int N>
cpu::LatentSizes in_packs(const cpu::LatentSizes& s) {
  return {s.tokens, s.heads, s.nope / N, s.rope / N, s.value / N};
}

}  // namespace

template <class T>
void latent_heads_forward(Context& gpu, const cpu::LatentHeadsForward<T>& a) {
  // A power of two divides the OR of these exactly if it divides each of them.
  with_pack<T>(
      a.s.nope | a.s.rope | a.s.value,
      [&]<int N>() {
        const cpu::LatentSizes s = in_packs<N>(a.s);
        for_each_item(gpu, "latent_heads_forward", s.tokens * s.heads * (s.nope + s.rope),
                      Expand<T, N>{a, s});
      },
      a.k, a.v, a.kv, a.k_rope);
}

template <class T>
void latent_heads_backward(Context& gpu, const cpu::LatentHeadsBackward<T>& a) {
  with_pack<T>(
      a.s.nope | a.s.rope | a.s.value,
      [&]<int N>() {
        const cpu::LatentSizes s = in_packs<N>(a.s);
        for_each_item(gpu, "latent_heads_backward", s.tokens * s.heads * (s.nope + s.value),
                      Collect<T, N>{a, s});
        for_each_item(gpu, "latent_heads_sum", s.tokens * s.rope, SumHeads<T, N>{a, s});
      },
      a.d_kv, a.d_k_rope, a.dk, a.dv);
}

#define TRIREME_INSTANTIATE(T)                                                        \
  template void latent_heads_forward<T>(Context&, const cpu::LatentHeadsForward<T>&); \
  template void latent_heads_backward<T>(Context&, const cpu::LatentHeadsBackward<T>&);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cuda
