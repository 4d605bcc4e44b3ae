// Models and requests for tests of speculative decoding.
#pragma once

#include <gtest/gtest.h>

#include "tests/serving/served_texts.h"

namespace trireme::test {

inline constexpr int64_t kMaxTokens = 96;

inline ModelConfig speculation_config(ModelFamily family, int64_t vocabulary) {
  ModelConfig config = test::tiny_model(family);
  config.max_positions = kMaxTokens;
  config.vocab_size = vocabulary;
  return config;
}

// Repetitive prompts, like code and quotations.
inline std::vector<TextRequest> speculation_requests(int count, int32_t vocabulary) {
  std::vector<TextRequest> out;
  for (int n = 0; n < count; ++n) {
    TextRequest request;
    for (int i = 0; i < 20; ++i) request.prompt.push_back((i % (3 + n % 4) + n) % vocabulary);
    request.count = 60;
    request.sampling.temperature = n % 2 == 0 ? 0 : 0.7;
    request.sampling.seed = static_cast<uint64_t>(n);
    out.push_back(std::move(request));
  }
  return out;
}

inline void expect_same_texts(const std::vector<Text>& got, const std::vector<Text>& want) {
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i].tokens, want[i].tokens) << i;
    EXPECT_EQ(got[i].logprobs, want[i].logprobs) << i;
  }
}

}  // namespace trireme::test
