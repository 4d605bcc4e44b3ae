// A conversation as a model's chat template writes it, with what is said in it kept as text: where
// a message spells a special token ("<|im_end|>"), no token is made of it, so that nobody speaks
// for another by writing its mark.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"
#include "engine/text/trie.h"

namespace trireme {

struct WrittenConversation : RenderedChat {
  // For EncodeOptions::breaks, ascending: each lies behind the first character of a special token's
  // spelling in a message. Empty where none spells one.
  std::vector<size_t> breaks;
};

// A character that stands for nothing in any text (Unicode 23.7, noncharacters U+FDD0 to U+FDEF)
// and that no string of the value has: to mark places with. InputError where all of them are used.
std::string unused_noncharacter(const nlohmann::ordered_json& value);

// What spells the tokenizer's special tokens, with their ids.
Trie special_tokens(const Tokenizer& tokenizer);

// For EncodeOptions::breaks: behind the first character of each of these that a text spells,
// overlapping ones too.
std::vector<size_t> breaks_of(std::string_view text, const Trie& specials);

class ConversationWriter {
 public:
  // Both must outlive this object. as_markup: special tokens in messages are those tokens, as in
  // HuggingFace's apply_chat_template().
  ConversationWriter(const ChatTemplate& chat, const Tokenizer& tokenizer, bool as_markup = false);

  // variables: as of ChatTemplate::render(); bos_token and eos_token are the tokenizer's, and those
  // of named_tokens() are beside it, unless they are given. "tools" may be the text of the list, as
  // data sets have it. Members of messages that are null are left out. InputError where "messages"
  // is no list of objects.
  WrittenConversation write(nlohmann::ordered_json variables) const;
  // The special token that the template writes behind what the assistant says; -1: none. Where it
  // is not the tokenizer's end of text ("<|im_end|>", "<|eot_id|>"), few files beside a tokenizer
  // say so.
  int32_t end_of_turn() const;

 private:
  const ChatTemplate& chat_;
  const Tokenizer& tokenizer_;
  Trie specials_;
  std::map<std::string, std::string> named_;
};

}  // namespace trireme
