#include "engine/core/parallel_for.h"
#include "engine/ops/attention/latent_heads.kernels.h"
#include "engine/ops/backend/vector_loop.cpu.h"

namespace trireme::cpu::TRIREME_ISA {
namespace {

constexpr int64_t kGrain = 1 << 13;  // elements worth a thread

template <class T>
TRIREME_INLINE void copy(T* to, const T* from, int64_t n) {
  __builtin_memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
}

int64_t grain_of(const LatentSizes& s) { return kGrain / (s.heads * (s.nope + s.rope) + 1) + 1; }

}  // namespace

template <class T>
void latent_heads_forward(const LatentHeadsForward<T>& a, int threads) {
  const LatentSizes s = a.s;
  const int64_t width = s.nope + s.rope, both = s.nope + s.value;
  parallel_for(threads, s.tokens, grain_of(s), [&a, s, width, both](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      for (int64_t h = 0; h < s.heads; ++h) {
        const int64_t head = t * s.heads + h;
        const T* from = a.kv + head * both;
        copy(a.k + head * width, from, s.nope);
        copy(a.k + head * width + s.nope, a.k_rope + t * s.rope, s.rope);
        copy(a.v + head * width, from + s.nope, s.value);
        for (int64_t d = s.value; d < width; ++d) a.v[head * width + d] = T{};
      }
  });
}

template <class T>
void latent_heads_backward(const LatentHeadsBackward<T>& a, int threads) {
  using F = compute_t<T>;
  const LatentSizes s = a.s;
  const int64_t width = s.nope + s.rope, both = s.nope + s.value;
  parallel_for(threads, s.tokens, grain_of(s), [&a, s, width, both](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t first = t * s.heads;
      for (int64_t h = 0; h < s.heads; ++h) {
        copy(a.d_kv + (first + h) * both, a.dk + (first + h) * width, s.nope);
        copy(a.d_kv + (first + h) * both + s.nope, a.dv + (first + h) * width, s.value);
      }
      for_vectors<F>(s.rope, [&](int64_t i, auto lanes) {
        Vec<F> sum = splat<Vec<F>>(F(0));
        for (int64_t h = 0; h < s.heads; ++h)
          sum += load_lanes(a.dk + (first + h) * width + s.nope + i, lanes);
        store_lanes(a.d_k_rope + t * s.rope + i, lanes, sum);
      });
    }
  });
}

#define TRIREME_INSTANTIATE(T)                                              \
  template void latent_heads_forward<T>(const LatentHeadsForward<T>&, int); \
  template void latent_heads_backward<T>(const LatentHeadsBackward<T>&, int);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cpu::TRIREME_ISA
