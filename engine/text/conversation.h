// A conversation as a model's chat template writes it, with what is said in it kept as text: where a message
// spells a special token ("<|im_end|>"), no token is made of it, so that nobody speaks for another by
// writing its mark.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"
#include "engine/text/trie.h"

namespace trireme {

struct WrittenConversation : RenderedChat {
  // For EncodeOptions::breaks, ascending: each lies behind the first character of a special token's spelling
  // in a message. Empty where none spells one.
  std::vector<size_t> breaks;
};

class ConversationWriter {
 public:
  // Both must outlive this object. as_markup: special tokens in messages are those tokens, as in
  // HuggingFace's apply_chat_template().
  ConversationWriter(const ChatTemplate& chat, const Tokenizer& tokenizer, bool as_markup = false);

  // variables: as of ChatTemplate::render(); bos_token and eos_token are the tokenizer's unless they are
  // given.
  WrittenConversation write(nlohmann::ordered_json variables) const;

 private:
  const ChatTemplate& chat_;
  const Tokenizer& tokenizer_;
  Trie specials_;
};

}  // namespace trireme
