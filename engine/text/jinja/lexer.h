// Lexer: splits a template into text and tokens, and applies the white-space control of tags.
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
  kName,      // or keyword
  kString,    // value, unescaped
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

// Tokens of a source with HuggingFace's settings: trim_blocks and lstrip_blocks, so that a tag on a
// line of its own leaves no output; "-" and "+" next to a tag strip or keep white space. Comments
// are removed. Ends with kEnd.
std::vector<Token> read_tokens(std::string_view source);

}  // namespace trireme::jinja
