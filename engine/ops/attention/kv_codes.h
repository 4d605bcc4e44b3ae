// Formats of KV cache rows, including KV cache quantization. A row is the D elements of one token's
// key or value in one head, stored as floats, or as 8-bit codes with a float32 scale per row:
//
//   largest = max |x|,  scale = largest / max_code,  code = nearest to x max_code / largest,
//   x ~ scale * code
//   int8       max_code 127     |error| <= largest / 254
//   fp8_e4m3   max_code 448     |error| <= the larger of |x| / 16 and largest / 458752
//   fp8_e5m2   max_code 57344   |error| <= the larger of |x| / 8 and largest / 7516192768
// and 2^-22 |x| more for the arithmetic in float32. Each bound is half a step of the codes: of
// integers for int8, of floats with 3 and 2 bits of mantissa for fp8. (Their subnormal codes are
// 2^-9 and 2^-16 apart.) Zeros are exact. A row whose largest is below 2^-100 becomes zeros; one
// with an infinity or a NaN is NaN in all its elements, as any result that uses it would be. int8
// has the smaller error if a row's elements are of similar magnitude, fp8 if a few are much larger
// than the others.
//
// One scale per row, while vLLM has one per tensor (by default 1): needs no calibration, makes a
// row's codes depend only on the row, and costs 4 bytes in addition to D.
#pragma once

#include "engine/core/dtype.h"
#include "engine/core/host_device.h"

namespace trireme {

enum class KvCodes : uint8_t { kNone, kInt8, kE4M3, kE5M2 };

struct KvType {
  DType dtype = DType::kF32;  // of the elements; uint8 for codes
  KvCodes codes = KvCodes::kNone;
  bool operator==(const KvType&) const = default;
};

std::string text(const KvType& type);  // "int8", "fp8_e4m3", "fp8_e5m2" or the dtype's name
int64_t row_bytes(const KvType& type, int64_t width);  // of a row of `width` elements, with scale

// --- shared by the kernels of both devices ---

// max_code of the formats above; not for kNone.
TRIREME_HOST_DEVICE [[gnu::always_inline]] constexpr float largest_code(KvCodes codes) {
  return codes == KvCodes::kInt8 ? 127.0f : codes == KvCodes::kE4M3 ? 448.0f : 57344.0f;
}

struct KvScale {
  float stored, inverse;  // code = x * inverse, rounded; inverse 0: all codes are 0, whatever x is
};
// largest: the row's largest magnitude; finite: no element is infinite or NaN. Below kSmallest,
// where the inverse could overflow, the row becomes zeros.
TRIREME_HOST_DEVICE [[gnu::always_inline]] constexpr KvScale kv_scale(KvCodes codes, float largest,
                                                                      bool finite) {
  constexpr float kSmallest = 0x1p-100f;
  if (!finite) return {__builtin_nanf(""), 0};
  if (largest < kSmallest) return {0, 0};
  return {largest / largest_code(codes), largest_code(codes) / largest};
}

}  // namespace trireme
