// Token names in log-probabilities.
#pragma once

#include <cstdint>
#include <string>

#include "engine/text/tokenizer.h"
#include "serving/text/text_stream.h"

namespace trireme {

// Name of a token, and the bytes that it stands for. The name is those bytes as text, or if they
// are not valid UTF-8 (part of a character) OpenAI's spelling: "bytes:\xf0\x9f".
struct TokenName {
  std::string name, bytes;
};

// Token by itself.
TokenName token_name(const Tokenizer& tokenizer, int32_t id);
// Token within a text, named by its share of the text. The share may be shorter than the token by
// itself: without the space at the start of a text, cut before a stop string, or empty for a hidden
// token.
TokenName token_name(const TokenText& token);

}  // namespace trireme
