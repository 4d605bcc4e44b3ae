// Vocabulary given by its tokens, for tests; id 0 is the stop token.
#pragma once

#include "serving/structured/compiled_grammar.h"

namespace trireme::test {

inline constexpr int32_t kEnd = 0;
inline constexpr int64_t kManyTokens = 1 << 20;  // more than any completion

// All 256 bytes after the stop token, then further tokens.
inline std::vector<std::string> byte_tokens(const std::vector<std::string>& more = {}) {
  std::vector<std::string> tokens = {""};
  for (int b = 0; b < 256; ++b) tokens.emplace_back(1, static_cast<char>(b));
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

inline std::shared_ptr<const TokenTrie> trie_of(const std::vector<std::string>& tokens) {
  return std::make_shared<TokenTrie>(tokens);
}

inline bool allows(std::span<const uint32_t> mask, int32_t id) {
  return (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
}

inline std::vector<int32_t> allowed(std::span<const uint32_t> mask, int64_t ids) {
  std::vector<int32_t> out;
  for (int32_t id = 0; id < ids; ++id)
    if (allows(mask, id)) out.push_back(id);
  return out;
}

// Returns whether the grammar accepts the bytes, one token each, as a complete text.
inline bool takes(const CompiledGrammar& grammar, const std::string& text) {
  const auto reader = grammar.begin({kEnd}, kManyTokens);
  for (size_t i = 0; i < text.size(); ++i) {
    const int32_t id = 1 + static_cast<uint8_t>(text[i]);
    if (!allows(reader->mask(), id)) return false;
    if (!reader->accept(id)) return reader->is_whole() && i + 1 == text.size();
  }
  return reader->is_whole();
}

}  // namespace trireme::test
