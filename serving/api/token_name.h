// Token names of log-probability entries.
#pragma once

#include <cstdint>
#include <string>

#include "engine/text/tokenizer.h"
#include "serving/text/text_stream.h"

namespace trireme {

// Name of a token, and its bytes. The name is the bytes as text, or if they are not valid UTF-8, as
// in a part of a character, OpenAI's form "bytes:\xf0\x9f".
struct TokenName {
  std::string name, bytes;
};

// Name of a token by itself.
TokenName token_name(const Tokenizer& tokenizer, int32_t id);
// Name of a token within a text: the part of the text that it produced (TokenText::text). This may
// be shorter than the name of the token by itself: it lacks the space at the start of a text, ends
// before a stop string, or is empty for a hidden token. The token's own bytes are used instead if
// they are not valid UTF-8, or if the part also has replacements of earlier tokens' invalid bytes.
TokenName token_name(const TokenText& token);

}  // namespace trireme
