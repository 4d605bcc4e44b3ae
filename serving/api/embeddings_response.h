// Response body of /v1/embeddings.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/core/dtype.h"

namespace trireme {

// Number format of the returned vectors.
struct EmbeddingFormat {
  bool base64 = false;        // base64 of the bytes (RFC 4648) instead of a list of numbers
  DType dtype = DType::kF32;  // of the bytes: float32, float16 or bfloat16; unused in a list
  bool big_endian = false;    // of the bytes: most significant byte first
};

// Scales a vector to Euclidean length 1; a zero vector is unchanged.
void normalize(std::vector<float>& embedding);

// Estimated bytes buffered for a response until it is sent: the vectors and the body.
int64_t embeddings_bytes(int64_t texts, int64_t dimensions, bool base64);

// embeddings: one vector of finite numbers per text; prompt_tokens: of all texts.
std::string embeddings_body(const std::string& model,
                            std::span<const std::vector<float>> embeddings, int64_t prompt_tokens,
                            const EmbeddingFormat& format);

}  // namespace trireme
