// The answer to /v1/embeddings.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trireme {

// A vector of length one: the first `count` elements of `hidden` over the root of the sum of their
// squares. Zeros stay.
std::vector<float> normalised(std::span<const float> hidden, size_t count);

// What is held of an answer that has not been sent, in bytes, at most: the numbers and their texts.
int64_t embeddings_bytes(int64_t texts, int64_t dimensions, bool base64);

// base64: the float32 numbers' bytes, least significant first, as text (RFC 4648), in the place of
// a list of numbers.
std::string embeddings_body(const std::string& model,
                            std::span<const std::vector<float>> embeddings, int64_t prompt_tokens,
                            bool base64);

}  // namespace trireme
