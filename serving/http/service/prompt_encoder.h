// Tokenization of prompts: text, token ids, or a conversation through the model's chat template.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/error.h"
#include "engine/text/conversation.h"
#include "serving/api/requests.h"

namespace trireme {

// Location of a text in a request, for errors: its field, and its index if the field is a list.
struct TextField {
  const char* param = "prompt";
  size_t index = 0, count = 1;

  std::string name() const { return count > 1 ? concat(param, "[", index, "]") : param; }
};

class PromptEncoder {
 public:
  // Both must outlive this object. chat: nullptr: conversations are rejected. adds_special: false:
  // texts never get the tokenizer's special tokens, even with add_special; conversations may.
  PromptEncoder(const Tokenizer& tokenizer, const ChatTemplate* chat, bool adds_special);

  // Encodes a prompt; token ids are returned as they are. ApiError 400, before tokenizing, if the
  // text has so many bytes that it must have more than max_tokens tokens. The result may
  // nevertheless be longer than max_tokens.
  std::vector<int32_t> encode(const Prompt& prompt, bool add_special,
                              std::optional<int64_t> max_tokens = {},
                              const TextField& field = {}) const;
  // Encodes a prompt of any size, truncated to at most `kept` tokens: the special tokens around the
  // text, and the last tokens of the text if keeps_end, else its first.
  std::vector<int32_t> encode_part(const Prompt& prompt, bool add_special, int64_t kept,
                                   bool keeps_end) const;
  struct Chat {
    std::vector<int32_t> tokens;
    // Names of members of messages, such as "name", whose text the template ignored.
    std::vector<std::string> unread_members;
  };
  // Encodes a conversation, given as the variables of the chat template. ApiError 400 when there is
  // no chat template, when the template refuses the conversation or ignores its tools or documents,
  // and for max_tokens as encode().
  Chat encode_chat(const nlohmann::ordered_json& variables, bool add_special,
                   std::optional<int64_t> max_tokens = {}) const;

 private:
  void check_bytes(std::string_view text, std::optional<int64_t> max_tokens,
                   const TextField& field) const;
  // ApiError 400 when the request names a template that the model does not have.
  void check_template(const nlohmann::ordered_json& variables) const;
  const Tokenizer& tokenizer_;
  const ChatTemplate* chat_;
  std::unique_ptr<ConversationWriter> writer_;
  bool adds_special_;
};

}  // namespace trireme
