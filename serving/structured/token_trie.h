// Trie of a vocabulary's tokens by their bytes. Nodes are in depth-first order, so that a walk is a
// loop that can skip subtrees.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer.h"

namespace trireme {

class TokenTrie {
 public:
  // output_vocab_size: output rows of the model, at least the tokenizer's vocabulary. Control
  // tokens, tokens without bytes and those above 1024 bytes are left out. Bytes are those of a
  // token that follows others (Tokenizer::append_bytes).
  TokenTrie(const Tokenizer& tokenizer, int64_t output_vocab_size);
  // Trie of given tokens with ids from 0; empty ones and those above 1024 bytes are left out.
  explicit TokenTrie(const std::vector<std::string>& tokens);

  int64_t ids() const { return ids_; }                // output_vocab_size
  int64_t words() const { return (ids_ + 31) / 32; }  // of 32 bits, in a mask
  // Bytes of a token, also of one above 1024 bytes; "" for a control token and for an id without a
  // token.
  std::string_view bytes(int32_t id) const;

  // Node 0 is the root, the empty text.
  int32_t nodes() const { return static_cast<int32_t>(bytes_.size()); }
  uint8_t byte(int32_t node) const { return bytes_[static_cast<size_t>(node)]; }  // last byte
  uint16_t depth(int32_t node) const { return depths_[static_cast<size_t>(node)]; }
  // First node after the subtree of `node`.
  int32_t end(int32_t node) const { return ends_[static_cast<size_t>(node)]; }
  // Ids of the tokens that end at `node`.
  std::span<const int32_t> tokens(int32_t node) const {
    const auto begin = static_cast<size_t>(first_token_[static_cast<size_t>(node)]);
    const auto last = static_cast<size_t>(first_token_[static_cast<size_t>(node) + 1]);
    return std::span(tokens_).subspan(begin, last - begin);
  }
  uint16_t depth() const { return depth_; }  // of the deepest node

 private:
  void build(const std::vector<std::string>& tokens);

  int64_t ids_ = 0;
  std::string text_;              // bytes of all tokens, by id
  std::vector<int64_t> text_at_;  // (tokens + 1)
  std::vector<uint8_t> bytes_;
  std::vector<uint16_t> depths_;
  std::vector<int32_t> ends_, first_token_, tokens_;
  uint16_t depth_ = 0;
};

}  // namespace trireme
