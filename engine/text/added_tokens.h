// Added tokens: special tokens ("<|im_start|>") and words added to a vocabulary, matched in a text
// before it is split into words.
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
  bool special = false;                 // a control token: decoded to no text
  bool normalized = false;              // matched after the normalizer
  bool single_word = false;             // matches only between characters that belong to no word
  bool lstrip = false, rstrip = false;  // also matches the white space on that side
};

// Reads an added token with the members "id", "content" and its flags, as listed in a
// tokenizer.json. `what` is the prefix of messages: the file. InputError if a member is invalid.
// "normalized" is by default the opposite of "special", the other flags are false.
AddedToken read_added_token(const nlohmann::json& json, const std::string& what);

class AddedTokens {
 public:
  AddedTokens() = default;
  // `json`: the list "added_tokens". `what` is the prefix of messages: the file.
  AddedTokens(const nlohmann::json& json, const Normalizer& normalizer, const std::string& what);
  AddedTokens(std::vector<AddedToken> tokens, const Normalizer& normalizer);

  const std::vector<AddedToken>& all() const { return tokens_; }
  // Bytes of the longest token, as matched; -1: no bound, since a token has lstrip or rstrip.
  int64_t longest() const { return longest_; }

  // Splits a text: calls token(id) for each token and part(text) for the text between, in order; no
  // part is empty. Matches the tokens with this `normalized` flag, the longest at each position;
  // special ones only with `special` and without a break inside (EncodeOptions::breaks).
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
