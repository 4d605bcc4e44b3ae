// A template as text and tokens, with the white space that tags take along already gone.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme::jinja {

enum class TokenKind {
  kText,      // between tags
  kPrint,     // {{
  kPrintEnd,  // }}
  kBlock,     // {%
  kBlockEnd,  // %}
  kName,      // and keywords
  kString,    // the text that is meant
  kInteger,
  kReal,
  kSymbol,  // "+", "==", "(" ...
  kEnd,
};

struct Token {
  TokenKind kind;
  std::string text;
  int line;
};

// As HuggingFace reads templates: trim_blocks and lstrip_blocks, so that a tag on a line of its own
// leaves nothing behind; "-" and "+" beside a tag strip or keep. Comments are gone. Ends with kEnd.
std::vector<Token> read_tokens(std::string_view source);

}  // namespace trireme::jinja
