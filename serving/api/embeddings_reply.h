// The answer to /v1/embeddings.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/core/dtype.h"

namespace trireme {

// Format of the numbers of a vector.
struct EmbeddingFormat {
  bool base64 = false;        // the numbers' bytes as text (RFC 4648), instead of a list of numbers
  DType dtype = DType::kF32;  // of the bytes: float32, float16 or bfloat16
  bool big_endian = false;    // most significant byte first
};

// Divides a vector by its length, the root of the sum of its squares. Zeros stay.
void normalise(std::vector<float>& embedding);

// What is held of an answer that has not been sent, in bytes, at most: the numbers and their texts.
int64_t embeddings_bytes(int64_t texts, int64_t dimensions, bool base64);

std::string embeddings_body(const std::string& model,
                            std::span<const std::vector<float>> embeddings, int64_t prompt_tokens,
                            const EmbeddingFormat& format);

}  // namespace trireme
