#include "engine/core/parallel_for.h"
#include "engine/ops/quantized/quantize.kernels.h"

namespace trireme::cpu::TRIREME_ISA {
namespace {

constexpr int64_t kGroup = 128;

// body(row)
template <class W, class Body>
[[gnu::always_inline]] inline void for_rows(const W& a, int threads, Body&& body) {
  constexpr int64_t kGrain = 1 << 14;  // elements worth a thread
  parallel_for(threads, a.rows, kGrain / (a.columns + 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) body(r);
  });
}

template <class T>
void extremes(const T* w, int64_t n, float& low, float& high) {
  low = high = convert_float<float>(w[0]);
  for (int64_t i = 1; i < n; ++i) {
    const float x = convert_float<float>(w[i]);
    low = x < low ? x : low;
    high = x > high ? x : high;
  }
}

}  // namespace

template <class T>
void quantize_int8(const Int8Weight<const T>& a, int threads) {
  for_rows(a, threads, [&a](int64_t r) {
    const T* const w = a.w + r * a.columns;
    float low, high;
    extremes(w, a.columns, low, high);
    const float scale = integer_scale(-low > high ? -low : high, 127.0f);
    for (int64_t c = 0; c < a.columns; ++c)
      a.codes[r * a.columns + c] = int8_code(convert_float<float>(w[c]), scale);
    a.scale[r] = scale;
  });
}

template <class T>
void dequantize_int8(const Int8Weight<T>& a, int threads) {
  for_rows(a, threads, [&a](int64_t r) {
    const float scale = a.scale[r];
    for (int64_t i = r * a.columns; i < (r + 1) * a.columns; ++i)
      a.w[i] = convert_float<T>(int8_value(a.codes[i], scale));
  });
}

template <class T>
void quantize_int4(const Int4Weight<const T>& a, int threads) {
  const int64_t groups = (a.columns + kGroup - 1) / kGroup;
  for_rows(a, threads, [&a, groups](int64_t r) {
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t at = r * a.columns + g * kGroup;
      const int64_t left = a.columns - g * kGroup, width = left < kGroup ? left : kGroup;
      float low, high;
      extremes(a.w + at, width, low, high);
      const Int4Scale scale = int4_scale(low, high, a.minimum == nullptr);
      for (int64_t i = 0; i < width; i += 2)
        a.codes[(at + i) / 2] =
            static_cast<uint8_t>(scale.code(convert_float<float>(a.w[at + i])) |
                                 scale.code(convert_float<float>(a.w[at + i + 1])) << 4);
      a.scale[r * groups + g] = scale.scale;
      if (a.minimum != nullptr) a.minimum[r * groups + g] = low;
    }
  });
}

template <class T>
void dequantize_int4(const Int4Weight<T>& a, int threads) {
  const int64_t groups = (a.columns + kGroup - 1) / kGroup;
  for_rows(a, threads, [&a, groups](int64_t r) {
    for (int64_t c = 0; c < a.columns; c += 2) {
      const int64_t g = r * groups + c / kGroup, at = r * a.columns + c;
      const bool symmetric = a.minimum == nullptr;
      const Int4Scale scale{a.scale[g], symmetric ? 0.0f : a.minimum[g], symmetric};
      const unsigned two = a.codes[at / 2];
      a.w[at] = convert_float<T>(scale.value(two));
      a.w[at + 1] = convert_float<T>(scale.value(two >> 4));
    }
  });
}

#define TRIREME_INSTANTIATE(T)                                     \
  template void quantize_int8<T>(const Int8Weight<const T>&, int); \
  template void dequantize_int8<T>(const Int8Weight<T>&, int);     \
  template void quantize_int4<T>(const Int4Weight<const T>&, int); \
  template void dequantize_int4<T>(const Int4Weight<T>&, int);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cpu::TRIREME_ISA
