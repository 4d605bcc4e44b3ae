// Names of tokens in log-probabilities.
#pragma once

#include <cstdint>
#include <string>

#include "engine/text/tokenizer.h"
#include "serving/text/text_stream.h"

namespace trireme {

// A token's name and the bytes that it stands for. The name is those bytes as text, or where they
// are no UTF-8 (a part of a character) spelled in OpenAI's way: "bytes:\xf0\x9f".
struct TokenName {
  std::string name, bytes;
};

// A token by itself.
TokenName token_name(const Tokenizer& tokenizer, int32_t id);
// A token of a text: its share, which may be less than the token by itself (without the space at
// the start of a text, cut off before a stop string, empty for a token that is not shown).
TokenName token_name(const TokenText& told);

}  // namespace trireme
