// Storage of KV cache rows: the D numbers of one token's key, or value, of one head.
//
// As floats, or as 8-bit codes with a scale (float32) per row:
//
//   largest = max |x|,  scale = largest / most,  code = nearest of x most / largest,
//   x ~ scale * code
//   int8       most 127     |error| <= largest / 254
//   fp8_e4m3   most 448     |error| <= the larger of |x| / 16 and largest / 458752
//   fp8_e5m2   most 57344   |error| <= the larger of |x| / 8 and largest / 7516192768
// and 2^-22 |x| more for the arithmetic in float32. Each bound is half a step of the codes: of
// integers for int8, of floats with 3 and 2 bits of mantissa for fp8. (Below the smallest normal
// number their steps are 2^-9 and 2^-16 of a unit of the codes.) Zeros are exact. A row whose
// largest is below 2^-100 becomes zeros; one with an infinity or a NaN is NaN in all its elements,
// as any result that uses it would be. int8 has the smaller error if a row's numbers are of similar
// magnitude, fp8 if few are much larger than the others.
//
// One scale per row, while vLLM has one per tensor (by default 1): it needs no calibration, a row's
// codes depend only on the row, and it costs 4 bytes in addition to D.
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
int64_t row_bytes(const KvType& type, int64_t width);  // scale included

// --- shared by the kernels of both devices ---

TRIREME_HOST_DEVICE [[gnu::always_inline]] constexpr float largest_code(KvCodes codes) {
  return codes == KvCodes::kInt8 ? 127.0f : codes == KvCodes::kE4M3 ? 448.0f : 57344.0f;
}

struct KvScale {
  float stored, inverse;  // inverse 0: the codes are zero for any content of the row
};
// largest: the row's largest magnitude, whose inverse stays finite; finite: whether all its numbers
// are.
TRIREME_HOST_DEVICE [[gnu::always_inline]] constexpr KvScale kv_scale(KvCodes codes, float largest,
                                                                      bool finite) {
  constexpr float kSmallest = 0x1p-100f;
  if (!finite) return {__builtin_nanf(""), 0};
  if (largest < kSmallest) return {0, 0};
  return {largest / largest_code(codes), largest_code(codes) / largest};
}

}  // namespace trireme
