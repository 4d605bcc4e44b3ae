#include "engine/ops/cpu/convert_rows.h"

#include <bit>
#include <type_traits>

#include "engine/core/parallel_for.h"

namespace trireme::cpu::TRIREME_ISA {
namespace {

constexpr int64_t kGrainElements = 1 << 14;

template <class T>
[[gnu::always_inline]] inline float widen(uint16_t bits) {
  if constexpr (std::is_same_v<T, bf16>)
    return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16);
  else
    return static_cast<float>(__builtin_bit_cast(_Float16, bits));
}

template <class T>
[[gnu::always_inline]] inline uint16_t narrow(float value) {
  if constexpr (std::is_same_v<T, bf16>) {
    const auto u = __builtin_bit_cast(uint32_t, value);
    const bool is_nan = (u & 0x7fffffffu) > 0x7f800000u;
    const uint32_t rounded = u + 0x7fffu + ((u >> 16) & 1u);
    return static_cast<uint16_t>((is_nan ? (u | 0x00400000u) : rounded) >> 16);
  } else {
    return __builtin_bit_cast(uint16_t, static_cast<_Float16>(value));
  }
}

[[gnu::always_inline]] inline int64_t grain_rows(int64_t columns) {
  return columns >= kGrainElements ? 1 : kGrainElements / (columns + 1) + 1;
}

}  // namespace

template <class T>
void widen_rows(const ConvertRows<T>& a, int threads) {
  parallel_for(threads, a.rows, grain_rows(a.columns), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const uint16_t* from = a.narrow + i * a.narrow_stride;
      float* to = a.wide + i * a.columns;
      for (int64_t j = 0; j < a.columns; ++j) to[j] = widen<T>(from[j]);
    }
  });
}

template <class T>
void narrow_rows(const ConvertRows<T>& a, int threads) {
  parallel_for(threads, a.rows, grain_rows(a.columns), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float* from = a.wide + i * a.columns;
      uint16_t* to = a.narrow + i * a.narrow_stride;
      for (int64_t j = 0; j < a.columns; ++j) to[j] = narrow<T>(from[j]);
    }
  });
}

template void widen_rows<bf16>(const ConvertRows<bf16>&, int);
template void widen_rows<f16>(const ConvertRows<f16>&, int);
template void narrow_rows<bf16>(const ConvertRows<bf16>&, int);
template void narrow_rows<f16>(const ConvertRows<f16>&, int);

}  // namespace trireme::cpu::TRIREME_ISA
