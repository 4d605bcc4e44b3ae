// Token names in log-probabilities.
#pragma once

#include <cstdint>
#include <string>

#include "engine/text/tokenizer.h"
#include "serving/text/text_stream.h"

namespace trireme {

// Name of a token, and its bytes. The name is the bytes as text. If they are not valid UTF-8,
// because they are a part of a character, the name has OpenAI's form: "bytes:\xf0\x9f".
struct TokenName {
  std::string name, bytes;
};

// Name of a token by itself.
TokenName token_name(const Tokenizer& tokenizer, int32_t id);
// Name of a token within a text: its share of the text. The share may be shorter than the token by
// itself: it lacks the space at the start of a text, ends before a stop string, or is empty for a
// hidden token.
TokenName token_name(const TokenText& token);

}  // namespace trireme
