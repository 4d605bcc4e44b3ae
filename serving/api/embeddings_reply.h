// The answer to /v1/embeddings.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trireme {

// A vector of length one: the first `count` elements of `hidden` over the root of the sum of their squares. Zeros stay.
std::vector<float> normalised(std::span<const float> hidden, size_t count);

// base64: the float32 numbers' bytes, least significant first, as text (RFC 4648), in the place of a list of numbers.
std::string embeddings_body(const std::string& model,
                            std::span<const std::vector<float>> embeddings, int64_t prompt_tokens,
                            bool base64);

}  // namespace trireme
