// A conversation as a model's chat template writes it, with what is said in it kept as text: where
// a message spells a special token ("<|im_end|>"), no token is made of it, so that nobody speaks
// for another by writing its mark.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/text/chat_template.h"
#include "engine/text/chat_variables.h"
#include "engine/text/tokenizer.h"
#include "engine/text/trie.h"

namespace trireme {

struct WrittenConversation : RenderedChat {
  // For EncodeOptions::breaks, ascending: each lies behind the first character of a special token's
  // spelling in a message. Empty where none spells one.
  std::vector<size_t> breaks;
  // Members of messages with text that the template does not read, each once: that text is lost.
  std::vector<std::string> unread_members = {};
};

// InputError where the template did not look at tools or documents that it was given
// (RenderedChat::unread). A part of a conversation may be written without them.
void check_all_read(const WrittenConversation& written);
// That error's text, for one of them.
std::string unread_text(const std::string& variable);

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
  // of named_tokens() are beside it, unless they are given; messages and tools as
  // read_chat_variables() has them, and "continue_final_message" as FinalMessage has it. InputError
  // where "messages" is no list of objects, and for what the template refuses.
  WrittenConversation write(nlohmann::ordered_json variables) const;
  // The special tokens that the templates write behind what the assistant says. Where one is not
  // the tokenizer's end of text ("<|im_end|>", "<|eot_id|>"), few files beside a tokenizer say so.
  std::vector<int32_t> ends_of_turn() const;

 private:
  int32_t end_of_turn(const std::string& name) const;  // -1: none
  const ChatTemplate& chat_;
  const Tokenizer& tokenizer_;
  Trie specials_;
  std::map<std::string, std::string> named_;
};

}  // namespace trireme
