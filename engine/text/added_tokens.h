// Tokens that are found in a text before it is cut into words: special ones ("<|im_start|>"), and
// words that were added to a vocabulary.
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
  bool special = false;                 // no text of its own: never written out
  bool normalized = false;              // is looked for behind the normalizer
  bool single_word = false;             // only between characters that belong to no word
  bool lstrip = false, rstrip = false;  // takes the white space beside it along
};

// One with the members "id", "content" and its flags, as a tokenizer.json lists it. `what` begins
// messages: the file.
AddedToken read_added_token(const nlohmann::json& json, const std::string& what);

class AddedTokens {
 public:
  AddedTokens() = default;
  // `json`: the list "added_tokens". `what` begins messages: the file.
  AddedTokens(const nlohmann::json& json, const Normalizer& normalizer, const std::string& what);
  AddedTokens(std::vector<AddedToken> tokens, const Normalizer& normalizer);

  const std::vector<AddedToken>& all() const { return tokens_; }
  // Bytes of the longest, as it is looked for; -1: one takes white space along.
  int64_t longest() const { return longest_; }

  // Calls token(id) and text(part) with what a text consists of, in its order; parts are not empty.
  // `normalized`: which of the tokens are looked for. Special ones only with `special`, and none
  // with a break in it (EncodeOptions::breaks).
  void split(std::string_view text, bool normalized, bool special, std::span<const size_t> breaks,
             const std::function<void(int32_t)>& token,
             const std::function<void(std::string_view)>& part) const;

 private:
  std::vector<AddedToken> tokens_;
  int64_t longest_ = 0;
  // [normalized][special]: what is looked for; values are places in tokens_.
  Trie tries_[2][2];
};

}  // namespace trireme
