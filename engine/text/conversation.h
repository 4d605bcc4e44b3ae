// Writer of conversations: renders a conversation with a model's chat template and keeps the
// content of messages as text. A special token spelled in a message ("<|im_end|>") is not encoded
// as that token, so that no message can imitate another role by writing its markup.
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
  // For EncodeOptions::breaks, ascending: the offset after the first character of each special
  // token spelled in a message. Empty if none is.
  std::vector<size_t> breaks;
  // Members of messages whose text the template does not write (lost_members()), each once.
  std::vector<std::string> unread_members = {};
};

// Throws InputError if the template did not read tools or documents that were passed
// (RenderedChat::unread). Not for part of a conversation, which may be rendered without them.
void check_all_read(const WrittenConversation& written);
// Returns the text of that error for one variable.
std::string unread_text(const std::string& variable);

// Returns the tokenizer's control tokens as spelled, with their ids.
Trie special_tokens(const Tokenizer& tokenizer);

// Returns, for EncodeOptions::breaks, the offset after the first character of each special token
// that a text spells, including overlapping ones.
std::vector<size_t> breaks_of(std::string_view text, const Trie& specials);

class ConversationWriter {
 public:
  // Both must outlive this object. as_markup: special tokens in messages are encoded as those
  // tokens, as in HuggingFace's apply_chat_template().
  ConversationWriter(const ChatTemplate& chat, const Tokenizer& tokenizer, bool as_markup = false);

  // Renders a conversation. variables: as for ChatTemplate::render(); bos_token, eos_token and
  // those of named_tokens() are the tokenizer's unless given; messages and tools are normalized by
  // read_chat_variables(), and "continue_final_message" is handled by FinalMessage. InputError in
  // the cases of these two and of ChatTemplate::render().
  WrittenConversation write(nlohmann::ordered_json variables) const;
  // Returns the special token that each template writes after an assistant's message, if any, each
  // once. Such a token ("<|im_end|>", "<|eot_id|>") may differ from the tokenizer's EOS, and a
  // model's files seldom list it as a stop token.
  std::vector<int32_t> ends_of_turn() const;

 private:
  int32_t end_of_turn(const std::string& name) const;  // -1: none
  const ChatTemplate& chat_;
  const Tokenizer& tokenizer_;
  Trie specials_;
  std::map<std::string, std::string> named_;
};

}  // namespace trireme
