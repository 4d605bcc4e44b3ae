#include "engine/ops/cpu/gemv.h"

#include <type_traits>

#include "engine/core/parallel_for.h"

namespace trireme::cpu::TRIREME_ISA {
namespace {

constexpr int kLanes = 16;
constexpr int64_t kGrainBytes = 1 << 15;  // of weight: less is not worth waking a thread

using FloatVector [[gnu::vector_size(64), gnu::aligned(4), gnu::may_alias]] = float;
using HalfVector [[gnu::vector_size(32), gnu::aligned(2), gnu::may_alias]] = uint16_t;
using WordVector [[gnu::vector_size(64)]] = uint32_t;
using Accumulator [[gnu::vector_size(64)]] = float;

[[gnu::always_inline]] inline float widen(uint16_t bits) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16);
}

[[gnu::always_inline]] inline uint16_t narrow(float value) {
  const auto u = __builtin_bit_cast(uint32_t, value);
  const bool is_nan = (u & 0x7fffffffu) > 0x7f800000u;
  const uint32_t rounded = u + 0x7fffu + ((u >> 16) & 1u);
  return static_cast<uint16_t>((is_nan ? (u | 0x00400000u) : rounded) >> 16);
}

[[gnu::always_inline]] inline Accumulator load(const float* p) {
  return *reinterpret_cast<const FloatVector*>(p);
}
[[gnu::always_inline]] inline Accumulator load(const uint16_t* p) {
  const WordVector words =
      __builtin_convertvector(*reinterpret_cast<const HalfVector*>(p), WordVector);
  return reinterpret_cast<Accumulator>(words << 16);
}
[[gnu::always_inline]] inline float load_one(const float* p) { return *p; }
[[gnu::always_inline]] inline float load_one(const uint16_t* p) { return widen(*p); }

[[gnu::always_inline]] inline float sum_lanes(Accumulator v) {
  float lanes[kLanes];
  __builtin_memcpy(lanes, &v, sizeof lanes);
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  return lanes[0];
}

// out[i] = dot(w, x + i * x_stride) for M rows of x; U independent sums hide the FMA's latency.
template <int M, int U, class Element>
[[gnu::always_inline]] inline void dot_rows(const Element* w, const float* x, int64_t x_stride,
                                            int64_t k, float* out) {
  Accumulator sums[M][U] = {};
  int64_t j = 0;
  for (; j + U * kLanes <= k; j += U * kLanes)
    for (int u = 0; u < U; ++u) {
      const Accumulator weights = load(w + j + u * kLanes);
      for (int i = 0; i < M; ++i) sums[i][u] += weights * load(x + i * x_stride + j + u * kLanes);
    }
  for (; j + kLanes <= k; j += kLanes) {
    const Accumulator weights = load(w + j);
    for (int i = 0; i < M; ++i) sums[i][0] += weights * load(x + i * x_stride + j);
  }
  for (int i = 0; i < M; ++i) {
    Accumulator sum = sums[i][0];
    for (int u = 1; u < U; ++u) sum += sums[i][u];
    out[i] = sum_lanes(sum);
  }
  for (; j < k; ++j)
    for (int i = 0; i < M; ++i) out[i] += load_one(w + j) * x[i * x_stride + j];
}

template <class Out>
[[gnu::always_inline]] inline void store(Out* y, const Out* bias, float value, bool accumulate) {
  if (bias != nullptr) value += load_one(bias);
  if (accumulate) value += load_one(y);
  if constexpr (std::is_same_v<Out, float>)
    *y = value;
  else
    *y = narrow(value);
}

template <int M, class T, class Element>
void rows_of_weight(const Gemv<T>& a, int64_t begin, int64_t end) {
  constexpr int kUnroll = M == 1 ? 4 : M <= 3 ? 2 : 1;
  const auto* w = static_cast<const Element*>(a.w);
  for (int64_t j = begin; j < end; ++j) {
    float dots[M];
    dot_rows<M, kUnroll>(w + j * a.w_stride, a.x, a.x_stride, a.k, dots);
    for (int i = 0; i < M; ++i) {
      const int64_t at = i * a.y_stride + j;
      const float value = a.alpha * dots[i];
      if (a.y_float32) {
        const auto* bias = static_cast<const float*>(a.bias);
        store(static_cast<float*>(a.y) + at, bias ? bias + j : nullptr, value, a.accumulate);
      } else {
        const auto* bias = static_cast<const Element*>(a.bias);
        store(static_cast<Element*>(a.y) + at, bias ? bias + j : nullptr, value, a.accumulate);
      }
    }
  }
}

}  // namespace

template <class T>
void gemv(const Gemv<T>& a, int threads) {
  using Element = std::conditional_t<std::is_same_v<T, bf16>, uint16_t, T>;
  const int64_t row_bytes = a.k * static_cast<int64_t>(sizeof(Element)) + 1;
  parallel_for(threads, a.n, kGrainBytes / row_bytes + 1, [&](int64_t begin, int64_t end) {
    switch (a.m) {
      case 1: return rows_of_weight<1, T, Element>(a, begin, end);
      case 2: return rows_of_weight<2, T, Element>(a, begin, end);
      case 3: return rows_of_weight<3, T, Element>(a, begin, end);
      case 4: return rows_of_weight<4, T, Element>(a, begin, end);
      case 5: return rows_of_weight<5, T, Element>(a, begin, end);
      case 6: return rows_of_weight<6, T, Element>(a, begin, end);
      case 7: return rows_of_weight<7, T, Element>(a, begin, end);
      default: return rows_of_weight<8, T, Element>(a, begin, end);
    }
  });
}

template void gemv<float>(const Gemv<float>&, int);
template void gemv<bf16>(const Gemv<bf16>&, int);

}  // namespace trireme::cpu::TRIREME_ISA
