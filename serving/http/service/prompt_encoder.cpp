#include "serving/http/service/prompt_encoder.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "serving/api/api_error.h"

namespace trireme {

PromptEncoder::PromptEncoder(const Tokenizer& tokenizer, const ChatTemplate* chat,
                             bool adds_special)
    : tokenizer_(tokenizer), chat_(chat), adds_special_(adds_special) {
  if (chat != nullptr) writer_ = std::make_unique<ConversationWriter>(*chat, tokenizer);
}

void PromptEncoder::check_bytes(std::string_view text, std::optional<int64_t> max_tokens,
                                const TextField& field) const {
  const int64_t of_token = tokenizer_.max_bytes_of_id();
  if (of_token == 0 || !max_tokens || std::ssize(text) / of_token <= *max_tokens) return;
  throw ApiError(400,
                 concat(field.name(), " has ", text.size(), " bytes, too many for the maximum of ",
                        *max_tokens, " tokens"),
                 field.param, "context_length_exceeded");
}

std::vector<int32_t> PromptEncoder::encode(const Prompt& prompt, bool add_special,
                                           std::optional<int64_t> max_tokens,
                                           const TextField& field) const {
  if (!prompt.is_text) return prompt.tokens;
  check_bytes(prompt.text, max_tokens, field);
  return tokenizer_.encode(prompt.text, {.add_special = add_special && adds_special_});
}

std::vector<int32_t> PromptEncoder::encode_part(const Prompt& prompt, bool add_special,
                                                int64_t kept, bool keeps_end) const {
  std::vector<int32_t> whole = encode(prompt, add_special);
  const int64_t over = std::ssize(whole) - kept;
  if (over <= 0) return whole;
  // Truncates the text between the special tokens.
  const std::vector<int32_t> text = encode(prompt, false);
  auto begin = std::ranges::search(whole, text).begin();
  int64_t size = std::ssize(text);
  if (begin == whole.end() || size < over) begin = whole.begin(), size = std::ssize(whole);
  const auto from = keeps_end ? begin : begin + (size - over);
  whole.erase(from, from + over);
  return whole;
}

void PromptEncoder::check_template(const nlohmann::ordered_json& variables) const {
  const std::string asked = variables.value("chat_template", "");
  try {
    (void)chosen_chat_template(chat_->sources(), variables.contains("tools"), asked);
  } catch (const InputError& error) {
    fail_field("chat_template", error.what(),
               asked.empty() ? "" : "; a request cannot bring its own template");
  }
}

PromptEncoder::Chat PromptEncoder::encode_chat(const nlohmann::ordered_json& variables,
                                               bool add_special,
                                               std::optional<int64_t> max_tokens) const {
  if (writer_ == nullptr)
    throw ApiError(400, "this model has no chat template: use /v1/completions", "messages",
                   "no_chat_template");
  check_template(variables);
  WrittenConversation written;
  try {
    written = writer_->write(variables);
  } catch (const InputError& error) {
    fail_field("messages", error.what());
  }
  if (!written.unread.empty())
    fail_field(written.unread.front(), unread_text(written.unread.front()));
  check_bytes(written.text, max_tokens, {.param = "messages"});
  const EncodeOptions options{
      .add_special = add_special, .parse_special = true, .breaks = written.breaks};
  return {tokenizer_.encode(written.text, options), std::move(written.unread_members)};
}

}  // namespace trireme
