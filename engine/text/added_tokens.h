// Added tokens: found in a text before it is split into words. Special tokens ("<|im_start|>"), and
// words added to a vocabulary.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine/text/normalizer.h"
#include "engine/text/trie.h"

namespace trireme {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;                 // has no text: decoded to nothing
  bool normalized = false;              // matched after the normalizer
  bool single_word = false;             // matches only between characters that belong to no word
  bool lstrip = false, rstrip = false;  // also matches the white space on that side
};

// Reads an added token with the members "id", "content" and its flags, as listed in a
// tokenizer.json. `what` is the prefix of messages: the file.
AddedToken read_added_token(const nlohmann::json& json, const std::string& what);

class AddedTokens {
 public:
  AddedTokens() = default;
  // `json`: the list "added_tokens". `what` is the prefix of messages: the file.
  AddedTokens(const nlohmann::json& json, const Normalizer& normalizer, const std::string& what);
  AddedTokens(std::vector<AddedToken> tokens, const Normalizer& normalizer);

  const std::vector<AddedToken>& all() const { return tokens_; }
  // Bytes of the longest token, as matched; -1: one of them also matches white space.
  int64_t longest() const { return longest_; }

  // Splits a text: calls token(id) and text(part) for its pieces in order; parts are not empty.
  // `normalized` selects the tokens to match. Special ones only with `special`, and none with a
  // break in it (EncodeOptions::breaks).
  void split(std::string_view text, bool normalized, bool special, std::span<const size_t> breaks,
             const std::function<void(int32_t)>& token,
             const std::function<void(std::string_view)>& part) const;

 private:
  std::vector<AddedToken> tokens_;
  int64_t longest_ = 0;
  // [normalized][special]: strings to match; values are indices into tokens_.
  Trie tries_[2][2];
};

}  // namespace trireme
