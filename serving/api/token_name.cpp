#include "serving/api/token_name.h"

#include <utility>

#include "engine/core/utf8.h"

namespace trireme {
namespace {

TokenName name_of_bytes(std::string bytes) {
  if (find_invalid_utf8(bytes) == bytes.size()) return {bytes, bytes};
  std::string name = "bytes:";
  for (const char byte : bytes) {
    constexpr char kHex[] = "0123456789abcdef";
    const auto b = static_cast<unsigned char>(byte);
    name.append("\\x").append(1, kHex[b >> 4]).append(1, kHex[b & 15]);
  }
  return {std::move(name), std::move(bytes)};
}

}  // namespace

TokenName token_name(const Tokenizer& tokenizer, int32_t id) {
  return name_of_bytes(token_bytes(tokenizer, id));
}

TokenName token_name(const TokenText& token) {
  const bool is_text = find_invalid_utf8(token.bytes) == token.bytes.size();
  // The share includes replacements of incomplete characters left by earlier tokens.
  const bool follows_replaced = !token.bytes.empty() && token.text.ends_with(token.bytes);
  return name_of_bytes(is_text && !follows_replaced ? token.text : token.bytes);
}

}  // namespace trireme
