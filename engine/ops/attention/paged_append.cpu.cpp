#include "engine/core/parallel_for.h"
#include "engine/ops/attention/paged_rows.cpu.h"
#include "engine/ops/backend/vector_loop.cpu.h"

namespace trireme::cpu::TRIREME_ISA {
namespace {

template <class T>
TRIREME_INLINE KvScale scale_of(KvCodes codes, const T* x, int64_t n) {
  Vec<float> largest{}, wrong{};
  for_vectors<float>(n, [&](int64_t i, auto lanes) {
    const Vec<float> v = load_lanes(x + i, lanes);
    const Vec<float> magnitude = v < 0.0f ? -v : v;
    largest = magnitude > largest ? magnitude : largest;
    wrong += v - v;  // NaN unless all are finite
  });
  float most = 0;
  for (int i = 0; i < kLanes<float>; ++i) most = largest[i] > most ? largest[i] : most;
  return kv_scale(codes, most, sum(wrong) == 0);
}

typedef int8_t Bytes __attribute__((vector_size(kLanes<float>)));

// |v| < 2^22
TRIREME_INLINE Bytes nearest_integers(Vec<float> v) {
  using Ints = Vec<int32_t>;
  const Ints shifted = __builtin_bit_cast(Ints, v + kRoundingShift<float>);
  return __builtin_convertvector(
      shifted - __builtin_bit_cast(Ints, splat<Vec<float>>(kRoundingShift<float>)), Bytes);
}

template <class T>
TRIREME_INLINE void encode_int8(uint8_t* codes, const T* x, float inverse, int64_t n) {
  for_vectors<float>(n, [&](int64_t i, auto lanes) {
    const Bytes bytes = nearest_integers(opaque(load_lanes(x + i, lanes) * inverse));
    __builtin_memcpy(codes + i, &bytes, static_cast<size_t>(smaller(n - i, kLanes<float>)));
  });
}

template <class F, class T>
TRIREME_INLINE void encode_fp8(uint8_t* codes, const T* x, float inverse, int64_t n) {
  for_vectors<float>(n, [&](int64_t i, auto lanes) {
    const Vec<float> v = opaque(load_lanes(x + i, lanes) * inverse);
    for (int64_t k = 0; k < smaller(n - i, kLanes<float>); ++k) codes[i + k] = F(v[k]).bits;
  });
}

template <class P, class T>
TRIREME_INLINE void append_row(const PagedPool& pool, const T* x, int64_t row, int64_t n) {
  P* const to = static_cast<P*>(pool.rows) + row * n;
  if constexpr (sizeof(P) > 1) {
    for_vectors<float>(
        n, [&](int64_t i, auto lanes) { store_lanes(to + i, lanes, load_lanes(x + i, lanes)); });
  } else {
    constexpr KvCodes kCodes = P::kKind;
    const KvScale scale = scale_of(kCodes, x, n);
    pool.scale[row] = scale.stored;
    auto* const codes = reinterpret_cast<uint8_t*>(to);
    if (scale.inverse == 0) {  // avoids 0 times infinity
      __builtin_memset(codes, 0, static_cast<size_t>(n));
      return;
    }
    using Number = std::conditional_t<kCodes == KvCodes::kE4M3, fp8_e4m3, fp8_e5m2>;
    if constexpr (kCodes == KvCodes::kInt8)
      encode_int8(codes, x, scale.inverse, n);
    else
      encode_fp8<Number>(codes, x, scale.inverse, n);
  }
}

}  // namespace

template <class T>
void paged_append(const PagedRows<T>& a, const PagedPools& pools, int threads) {
  constexpr int64_t kGrain = 1 << 13;  // elements worth a thread
  const auto rows = [&]<class P>(int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      for (int64_t h = 0; h < a.kv_heads && a.slots[t] >= 0; ++h) {
        const int64_t slot = a.slots[t];
        const int64_t row =
            (slot / a.block_size * a.kv_heads + h) * a.block_size + slot % a.block_size;
        append_row<P>(pools.k, a.k.data + t * a.k.row + h * a.k.head, row, a.width);
        append_row<P>(pools.v, a.v.data + t * a.v.row + h * a.v.head, row, a.width);
      }
  };
  const int64_t grain = kGrain / (a.kv_heads * a.width + 1) + 1;
  parallel_for(threads, a.rows, grain, [&](int64_t begin, int64_t end) {
    for_pool_type<float>(pools.type, [&]<class P>() { rows.template operator()<P>(begin, end); });
  });
}

template void paged_append<float>(const PagedRows<float>&, const PagedPools&, int);
template void paged_append<bf16>(const PagedRows<bf16>&, const PagedPools&, int);
template void paged_append<f16>(const PagedRows<f16>&, const PagedPools&, int);

}  // namespace trireme::cpu::TRIREME_ISA
