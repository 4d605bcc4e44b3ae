// Block formats of GGUF tensors (ggml's), and conversion from and to float32.
//
//   Q8_0   32 numbers   f16 d; int8 q[32]                        y = d q
//   Q4_0   32           f16 d; 4-bit q[32], low halves first     y = d (q - 8)
//   Q4_K   256          f16 d, dmin; 8 pairs of 6-bit (s, m)     y = (d s) q - dmin m
//                       and 4-bit q[256]; a pair per 32 numbers
//   Q6_K   256          6-bit q; int8 s[16]; f16 d               y = (d s) (q - 32)
//                       one s per 16 numbers
//
// Products are computed in float32 in the order of the formulas, which is that of ggml and of its
// Python package.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "engine/core/dtype.h"

namespace trireme {

inline constexpr int64_t kMaxGgufBlock = 256;  // numbers in the largest block

struct GgufType {
  uint32_t id;  // in the file
  const char* name;
  int64_t block = 1;           // numbers in a block
  int64_t block_bytes = 0;     // of a block
  std::optional<DType> dtype;  // stored as this dtype; absent: quantized, or no such DType
  // Conversion of one block; null for types stored as `dtype` and for unsupported quantized types.
  void (*decode)(const std::byte* block, float* numbers) = nullptr;
  void (*encode)(const float* numbers, std::byte* block) = nullptr;
};
// nullptr for an unknown type.
const GgufType* gguf_type(uint32_t id);
const GgufType* gguf_type(std::string_view name);

// Encoders of a block of finite numbers. Scales fit into float16 if |x| is at most 65504 times the
// largest code.
//
//   Q8_0   d = max |x| / 127, q = x / d rounded, halves away from zero: ggml's
//   Q4_0   d = x / -8 of the number x of the largest |x|, q = x / d + 8 rounded, at most 15: ggml's
//   Q4_K   13 scales per 32 numbers are tried, around the one with which the codes cover the whole
//          range; each is refitted to its codes by least squares, and the s and m of the smallest
//          squared error are used; the largest s and m become 63
//   Q6_K   17 scales per 16 numbers are tried in the same way, around the one with which the number
//          of the largest |x| has the code -32; the s of the largest magnitude becomes -128
//
// Deterministic: equal numbers give equal bytes on every machine. The formats are ggml's; for K
// types ggml searches differently and may choose other codes.
void encode_q8_0(const float* numbers, std::byte* block);
void encode_q4_0(const float* numbers, std::byte* block);
void encode_q4_k(const float* numbers, std::byte* block);
void encode_q6_k(const float* numbers, std::byte* block);

}  // namespace trireme
