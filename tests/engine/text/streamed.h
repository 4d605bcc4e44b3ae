// Text of a tokenizer's detokenizer, one token at a time.
#pragma once

#include <gtest/gtest.h>

#include "engine/core/error.h"
#include "engine/core/utf8.h"
#include "engine/text/tokenizer.h"

namespace trireme::test {

inline std::string streamed(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  const auto detokenizer = tokenizer.detokenizer();
  DetokenizedText out;
  for (const int32_t id : ids) {
    detokenizer->push(id, !tokenizer.is_control(id), out);
    EXPECT_EQ(find_invalid_utf8(out.text), out.text.size());
  }
  detokenizer->finish(out);
  return out.text;
}

}  // namespace trireme::test
