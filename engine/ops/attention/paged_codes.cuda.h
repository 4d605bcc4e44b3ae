// Decoding of 8-bit codes in a KV cache (engine/ops/attention/kv_codes.h). For CUDA sources only.
#pragma once

#include <type_traits>

#include "engine/core/float8.h"
#include "engine/device/mma.h"
#include "engine/ops/attention/kv_codes.h"
#include "engine/ops/backend/kernel.cuda.h"

namespace trireme::cuda {

// Calls f.operator()<codes>(); no call for kNone. All threads of a launch have the same `codes`, so
// the switch does not diverge.
template <class F>
__device__ void with_codes(KvCodes codes, F&& f) {
  switch (codes) {
    case KvCodes::kInt8: return f.template operator()<KvCodes::kInt8>();
    case KvCodes::kE4M3: return f.template operator()<KvCodes::kE4M3>();
    case KvCodes::kE5M2: return f.template operator()<KvCodes::kE5M2>();
    case KvCodes::kNone: return;
  }
}

// Value of the code in the lowest byte of `byte`, before scaling. Exact, including subnormal
// numbers: for fp8 the multiplication corrects for the different exponent biases.
template <KvCodes kCodes>
__device__ float code_number(uint32_t byte) {
  if constexpr (kCodes == KvCodes::kInt8) {
    return static_cast<float>(static_cast<int8_t>(byte & 0xffu));
  } else {
    constexpr bool kE4M3 = kCodes == KvCodes::kE4M3;
    constexpr int kShift = kE4M3 ? 20 : 21;
    const uint32_t bits = (byte & 0x80u) << 24 | (byte & 0x7fu) << kShift;
    return __uint_as_float(bits) * (kE4M3 ? 0x1p120f : 0x1p112f);
  }
}

// Two code_number() values packed as in an MMA fragment register. Exact: T (bf16 or f16) represents
// the value of every code.
template <class T>
__device__ uint32_t exact_two(float low, float high) {
  if constexpr (std::is_same_v<T, bf16>)
    return __float_as_uint(low) >> 16 | (__float_as_uint(high) & 0xffff0000u);
  else
    return pack_two<T>(low, high);
}

// Code of x * inverse, bit-identical to that of the CPU kernels: hence the product must be rounded
// before it is converted, not fused with the conversion.
template <KvCodes kCodes>
__device__ uint8_t code_of(float x, float inverse) {
  if constexpr (kCodes == KvCodes::kInt8) {
    constexpr float kNoFraction = 0x1.8p23f;
    const float shifted = __fadd_rn(__fmul_rn(x, inverse), kNoFraction);
    return static_cast<uint8_t>(__float_as_uint(shifted) - __float_as_uint(kNoFraction));
  } else {
    using Number = std::conditional_t<kCodes == KvCodes::kE4M3, fp8_e4m3, fp8_e5m2>;
    return Number(__fmul_rn(x, inverse)).bits;
  }
}

}  // namespace trireme::cuda
