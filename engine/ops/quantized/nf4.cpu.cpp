#include "engine/core/parallel_for.h"
#include "engine/ops/quantized/nf4.kernels.h"

namespace trireme::cpu::TRIREME_ISA {
namespace {

// body(row)
template <class W, class Body>
[[gnu::always_inline]] inline void for_rows(const W& a, int threads, Body&& body) {
  constexpr int64_t kGrain = 1 << 14;  // elements worth a thread
  parallel_for(threads, a.rows, kGrain / (a.columns + 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) body(r);
  });
}

[[gnu::always_inline]] inline int64_t width_of(int64_t columns, int64_t block) {
  const int64_t left = columns - block * kNf4Width;
  return left < kNf4Width ? left : kNf4Width;
}

}  // namespace

template <class T>
void quantize_nf4(const Nf4Weight<const T>& a, int threads) {
  const int64_t blocks = (a.columns + kNf4Width - 1) / kNf4Width;
  for_rows(a, threads, [&a, blocks](int64_t r) {
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t at = r * a.columns + b * kNf4Width, width = width_of(a.columns, b);
      float x[kNf4Width] = {};
      float largest = 0;
      for (int64_t i = 0; i < width; ++i) {
        x[i] = convert_float<float>(a.w[at + i]);
        const float magnitude = x[i] < 0 ? -x[i] : x[i];
        largest = magnitude > largest ? magnitude : largest;
      }
      a.scale[r * blocks + b] = largest;
      const float inverse = nf4_inverse(largest);
      for (float& v : x) v *= inverse;
      int code[kNf4Width] = {};
#pragma GCC unroll 15
      for (int k = 0; k + 1 < kNf4ValueCount; ++k) {
        const float bound = nf4_bound(k);
        for (int64_t i = 0; i < kNf4Width; ++i) code[i] += x[i] > bound ? 1 : 0;
      }
      for (int64_t i = 0; i < width; i += 2)
        a.codes[(at + i) / 2] = static_cast<uint8_t>(code[i] << 4 | code[i + 1]);
    }
  });
}

template <class T>
void dequantize_nf4(const Nf4Decode<T>& a, const Nf4Tables& tables, int threads) {
  const int64_t blocks = (a.columns + kNf4Width - 1) / kNf4Width;
  for_rows(a, threads, [&a, &tables, blocks](int64_t r) {
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t at = r * a.columns + b * kNf4Width, width = width_of(a.columns, b);
      const float scale = nf4_scale_at(a.scales, tables.scale, r, b, blocks);
      T value[kNf4ValueCount];
      for (int k = 0; k < kNf4ValueCount; ++k) value[k] = convert_float<T>(tables.value[k] * scale);
      for (int64_t i = 0; i < width; i += 2) {
        const unsigned two = a.codes[(at + i) / 2];
        a.w[at + i] = value[two >> 4];
        a.w[at + i + 1] = value[two & 15u];
      }
    }
  });
}

#define TRIREME_INSTANTIATE(T)                                   \
  template void quantize_nf4<T>(const Nf4Weight<const T>&, int); \
  template void dequantize_nf4<T>(const Nf4Decode<T>&, const Nf4Tables&, int);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cpu::TRIREME_ISA
