// Prompts as token ids: text, token ids or a conversation through the model's chat template.
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

// A text of a request: its field, and its index where the field has a list of several.
struct TextField {
  const char* param = "prompt";
  size_t index = 0, count = 1;

  std::string name() const { return count > 1 ? concat(param, "[", index, "]") : param; }
};

class PromptEncoder {
 public:
  // Both must outlive this object; chat may be nullptr: conversations are refused then.
  // adds_special: texts get the tokenizer's special tokens where a request asks for them.
  PromptEncoder(const Tokenizer& tokenizer, const ChatTemplate* chat, bool adds_special);

  // ApiError 400 for a text that must have more than max_tokens tokens, before it is tokenized.
  std::vector<int32_t> encode(const Prompt& prompt, bool add_special,
                              std::optional<int64_t> max_tokens = {},
                              const TextField& field = {}) const;
  // The same, of which only `kept` tokens are kept, special tokens around the text among them: its
  // last ones, or its first.
  std::vector<int32_t> encode_part(const Prompt& prompt, bool add_special, int64_t kept,
                                   bool keeps_end) const;
  struct Chat {
    std::vector<int32_t> tokens;
    std::vector<std::string> unread_members;  // of messages, whose text the template did not read
  };
  // ApiError 400 where the template refuses the conversation, or does not look at tools or
  // documents in it.
  Chat encode_chat(const nlohmann::ordered_json& variables, bool add_special,
                   std::optional<int64_t> max_tokens = {}) const;

 private:
  void check_bytes(std::string_view text, std::optional<int64_t> max_tokens,
                   const TextField& field) const;
  // ApiError 400 for a template that the model has not.
  void check_template(const nlohmann::ordered_json& variables) const;
  const Tokenizer& tokenizer_;
  const ChatTemplate* chat_;
  std::unique_ptr<ConversationWriter> writer_;
  bool adds_special_;
};

}  // namespace trireme
