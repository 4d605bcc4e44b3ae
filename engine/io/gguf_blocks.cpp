#include "engine/io/gguf_blocks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace trireme {
namespace {

float half_at(const std::byte* p) {
  f16 value;
  std::memcpy(&value, p, sizeof(value));
  return static_cast<float>(value);
}
int code(const std::byte* p) { return std::to_integer<int>(*p); }
int signed_code(const std::byte* p) { return static_cast<int8_t>(std::to_integer<uint8_t>(*p)); }

void decode_q8_0(const std::byte* block, float* y) {
  const float d = half_at(block);
  for (int i = 0; i < 32; ++i) y[i] = d * static_cast<float>(signed_code(block + 2 + i));
}

void decode_q4_0(const std::byte* block, float* y) {
  const float d = half_at(block);
  for (int i = 0; i < 16; ++i) {
    const int q = code(block + 2 + i);
    y[i] = d * static_cast<float>((q & 15) - 8);
    y[i + 16] = d * static_cast<float>((q >> 4) - 8);
  }
}

// Pair j of the 8 scales and 8 minima of 6 bits packed into 12 bytes.
void scale_and_minimum(const std::byte* packed, int j, float& scale, float& minimum) {
  int s = 0, m = 0;
  if (j < 4) {
    s = code(packed + j) & 63;
    m = code(packed + j + 4) & 63;
  } else {
    s = (code(packed + j + 4) & 15) | (code(packed + j - 4) >> 6) << 4;
    m = (code(packed + j + 4) >> 4) | (code(packed + j) >> 6) << 4;
  }
  scale = static_cast<float>(s);
  minimum = static_cast<float>(m);
}

void decode_q4_k(const std::byte* block, float* y) {
  const float d = half_at(block), dmin = half_at(block + 2);
  const std::byte* q = block + 16;
  for (int j = 0; j < 8; j += 2, q += 32)
    for (int half = 0; half < 2; ++half) {
      float scale = 0, minimum = 0;
      scale_and_minimum(block + 4, j + half, scale, minimum);
      const float ds = d * scale, m = dmin * minimum;
      for (int i = 0; i < 32; ++i)
        *y++ = ds * static_cast<float>(half == 0 ? code(q + i) & 15 : code(q + i) >> 4) - m;
    }
}

void decode_q6_k(const std::byte* block, float* y) {
  const std::byte *low = block, *high = block + 128, *scales = block + 192;
  const float d = half_at(block + 208);
  for (int part = 0; part < 2; ++part, low += 64, high += 32, scales += 8, y += 128)
    for (int i = 0; i < 32; ++i)
      for (int quarter = 0; quarter < 4; ++quarter) {
        const int nibbles = code(low + i + quarter % 2 * 32);
        const int four = quarter < 2 ? nibbles & 15 : nibbles >> 4;
        const int two = code(high + i) >> (2 * quarter) & 3;
        const float scale = d * static_cast<float>(signed_code(scales + i / 16 + 2 * quarter));
        y[i + 32 * quarter] = scale * static_cast<float>((four | two << 4) - 32);
      }
}

constexpr std::array<GgufType, 18> kTypes{{{0, "F32", 1, 4, DType::kF32},
                                           {1, "F16", 1, 2, DType::kF16},
                                           {2, "Q4_0", 32, 18, {}, decode_q4_0, encode_q4_0},
                                           {3, "Q4_1", 32, 20, {}},
                                           {6, "Q5_0", 32, 22, {}},
                                           {7, "Q5_1", 32, 24, {}},
                                           {8, "Q8_0", 32, 34, {}, decode_q8_0, encode_q8_0},
                                           {10, "Q2_K", 256, 84, {}},
                                           {11, "Q3_K", 256, 110, {}},
                                           {12, "Q4_K", 256, 144, {}, decode_q4_k, encode_q4_k},
                                           {13, "Q5_K", 256, 176, {}},
                                           {14, "Q6_K", 256, 210, {}, decode_q6_k, encode_q6_k},
                                           {24, "I8", 1, 1, {}},
                                           {25, "I16", 1, 2, {}},
                                           {26, "I32", 1, 4, DType::kI32},
                                           {27, "I64", 1, 8, DType::kI64},
                                           {28, "F64", 1, 8, DType::kF64},
                                           {30, "BF16", 1, 2, DType::kBF16}}};

}  // namespace

const GgufType* gguf_type(uint32_t id) {
  const auto* const found = std::ranges::find(kTypes, id, &GgufType::id);
  return found == kTypes.end() ? nullptr : found;
}

const GgufType* gguf_type(std::string_view name) {
  const auto* const found = std::ranges::find(kTypes, name, &GgufType::name);
  return found == kTypes.end() ? nullptr : found;
}

}  // namespace trireme
