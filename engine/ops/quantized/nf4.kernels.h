// Kernels of engine/ops/quantized/nf4.h.
#pragma once

#include "engine/core/convert_float.h"
#include "engine/core/device_memory.h"
#include "engine/ops/backend/isa.h"

namespace trireme::cpu {

inline constexpr int kNf4ValueCount = 16, kNf4Width = 64;  // kNf4Width: columns of a block
// Values of the NF4 type, as published by its authors.
inline constexpr float kNf4Value[kNf4ValueCount] = {-1.0f,
                                                    -0.6961928009986877f,
                                                    -0.5250730514526367f,
                                                    -0.39491748809814453f,
                                                    -0.28444138169288635f,
                                                    -0.18477343022823334f,
                                                    -0.09105003625154495f,
                                                    0.0f,
                                                    0.07958029955625534f,
                                                    0.16093020141124725f,
                                                    0.24611230194568634f,
                                                    0.33791524171829224f,
                                                    0.44070982933044434f,
                                                    0.5626170039176941f,
                                                    0.7229568362236023f,
                                                    1.0f};

// Values of the codes of weights, and of the codes of double-quantized scales.
struct Nf4Tables {
  float value[kNf4ValueCount];
  float scale[256];
};

// W: T, or const T for quantization.
template <class W>
struct Nf4Weight {
  W* w;
  uint8_t* codes;
  float* scale;
  int64_t rows, columns;
};

// Scales as Nf4Scales has them: float32 if `scale` is not null, else double-quantized. `stride` is
// the actual one, not 0.
struct Nf4ScaleView {
  const float* scale;
  const uint8_t* codes;
  const float *groups, *offset;
  int64_t first, stride;
};
template <class T>
struct Nf4Decode {
  T* w;
  const uint8_t* codes;
  Nf4ScaleView scales;
  int64_t rows, columns;
};

// Midpoint between value i and the next.
constexpr float nf4_bound(int i) { return (kNf4Value[i] + kNf4Value[i + 1]) / 2; }

TRIREME_CPU_KERNEL(quantize_nf4, (const Nf4Weight<const T>& a, int threads))
TRIREME_CPU_KERNEL(dequantize_nf4, (const Nf4Decode<T>& a, const Nf4Tables& tables, int threads))

// --- shared by the CPU and GPU kernels ---

// 1 / scale; large but finite for scale 0.
TRIREME_HOST_DEVICE [[gnu::always_inline]] inline float nf4_inverse(float scale) {
  return 1.0f / (scale > 1e-38f ? scale : 1e-38f);
}

// magnitude * group + offset: a double-quantized scale. The product is rounded separately, so that
// the scale does not depend on whether a machine has fused multiply-add.
TRIREME_HOST_DEVICE [[gnu::always_inline]] inline float nf4_scale(float magnitude, float group,
                                                                  float offset) {
#ifdef __CUDA_ARCH__
  return __fadd_rn(__fmul_rn(magnitude, group), offset);
#else
  float product = magnitude * group;
  asm("" : "+m"(product));
  return product + offset;
#endif
}

// Scale of a block, number `block` of the `blocks` of row `row`. table: Nf4Tables::scale.
TRIREME_HOST_DEVICE [[gnu::always_inline]] inline float nf4_scale_at(const Nf4ScaleView& s,
                                                                     const float* table,
                                                                     int64_t row, int64_t block,
                                                                     int64_t blocks) {
  if (s.scale != nullptr) return s.scale[row * blocks + block];
  const int64_t group = (s.first + row * s.stride + block) / 256;
  return nf4_scale(table[s.codes[row * blocks + block]], s.groups[group], *s.offset);
}

}  // namespace trireme::cpu

// GPU kernels.
namespace trireme::cuda {

struct Context;  // engine/device/context.h

template <class T>
TRIREME_CUDA_DECL void quantize_nf4(Context& gpu, const cpu::Nf4Weight<const T>& a);
template <class T>
TRIREME_CUDA_DECL void dequantize_nf4(Context& gpu, const cpu::Nf4Decode<T>& a,
                                      const cpu::Nf4Tables& tables);

}  // namespace trireme::cuda
