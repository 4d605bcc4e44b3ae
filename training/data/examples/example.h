// Fine-tuning example: a record as tokens, with a mask of the tokens that have loss (trained
// tokens).
//
// Forms of a record
//   {"messages": [{"role": ..., "content": ...}, ...]}
//       conversation, rendered by the chat template
//   {"conversations": [{"from": ..., "value": ...}, ...]}
//       the same with ShareGPT's names; "system" may hold the system message
//   {"prompt": ..., "completion": ...}
//       two strings, which are concatenated, or two lists of messages; with a list as completion,
//       a string prompt is a user message
//   {"instruction": ..., "input": ..., "output": ...}
//       Alpaca. With a chat template it is two messages, after a system message if the record has
//       "system"; the user message joins instruction and input with a line break. Without one it is
//       the prompt text of Stanford's Alpaca
//   {"text": ...}
//       document
//   {"prompt": ..., "chosen": ..., "rejected": ...}
//       two responses to one prompt, each like a completion (training/data/examples/record.h)
// A record of messages may also have variables for the template: "tools" (a list, or its text),
// "documents" and "chat_template_kwargs" (any others). Tools or documents that the template does
// not read are an error. Other members are ignored.
//
// Trained tokens
//   - Messages: the assistant's text, including the token that ends a response. The template's
//     {% generation %} tags mark this text. Without tags it is what rendering the assistant's
//     message adds to the rendered earlier messages and generation prompt.
//   - Some templates render a response differently when messages follow it. Its position is then
//     found with marks (training/data/examples/message_place.h). The trained range starts after the
//     generation prompt if that directly precedes the response, else at the message's text. It ends
//     after the text with which the template closes a last message, or after the single special
//     token that replaces this closing text.
//   - A message with "weight": 0 or "train": false has no trained tokens.
//   - Completions (without their prompts) and documents: all tokens. Text without a template ends
//     with the tokenizer's end-of-document token.
//
// Tokenization: the text is encoded as a whole. The template's own special tokens are parsed; those
// spelled in a message (engine/text/conversation.h) or in text without a template are plain text. A
// token is trained on if any of its bytes is in a trained range. If the tokens do not spell the
// text because a normalizer changed it, each range is encoded separately.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "engine/config/json.h"
#include "engine/text/conversation.h"
#include "engine/text/tokenizer.h"
#include "engine/text/trie.h"
#include "training/data/examples/record.h"

namespace trireme {

struct Example {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> loss_mask;  // (tokens) 1: trained on
  bool spells_markup = false;      // text without a template spells special tokens, as plain text
  // Members of messages that have text and that the template did not read (WrittenConversation in
  // engine/text/conversation.h).
  std::vector<std::string> unread_members = {};
};

class ExampleReader {
 public:
  // tokenizer: must outlive this object. chat_templates: empty: none. assistant_only: false trains
  // on all tokens, except those of messages with "weight": 0 or "train": false. parse_special:
  // parses special tokens that are spelled in messages and texts.
  ExampleReader(const Tokenizer& tokenizer, const ChatTemplateSources& chat_templates,
                bool assistant_only, bool parse_special = false);

  // InputError if the record has none of the forms or is invalid, or if the template refuses it.
  Example read(const Json& record) const;
  // The prompt with the chosen response, and the prompt with the rejected one.
  std::array<Example, 2> read_pair(const Json& record) const;

 private:
  using Range = std::pair<size_t, size_t>;  // of bytes
  using Ranges = std::vector<Range>;
  WrittenConversation render(const Json& messages, const Json& record,
                             bool generation_prompt) const;
  WrittenConversation render_whole(const Json& messages, const Json& record) const;
  std::string written(const Json& messages, size_t count, const Json& record) const;
  void check_roles(const Json& messages) const;
  Example conversation(const Json& messages, const Json& record) const;
  Example completion_example(const Json& prompt, const Json& completion, const Json& record) const;
  Example alpaca(const Json& record) const;
  Example document(const std::string& text, size_t learned_from) const;
  Ranges assistant_ranges(const Json& messages, const Json& record, const WrittenConversation& chat,
                          size_t from) const;
  bool add_gained(const Json& messages, const Json& record, const std::string& text, size_t from,
                  Ranges& ranges) const;
  Range marked_range(const Json& messages, size_t index, const Json& record,
                     const WrittenConversation& chat, size_t after) const;
  Range said(const Json& messages, size_t index, const Json& record, const std::string& text) const;
  size_t end_of_response(const Json& messages, size_t index, const Json& record,
                         const std::string& text, size_t said_until) const;
  size_t behind_special(std::string_view text) const;
  void leave_out_unlearned(const Json& messages, const Json& record, const std::string& text,
                           Ranges& ranges) const;
  Example tokenize(const std::string& text, const Ranges& learned,
                   const EncodeOptions& options) const;
  Example tokenize_parts(const std::string& text, const Ranges& learned,
                         const EncodeOptions& options) const;

  const Tokenizer& tokenizer_;
  std::unique_ptr<const ChatTemplate> template_;
  std::unique_ptr<const ConversationWriter> writer_;
  Trie specials_;
  bool assistant_only_, parse_special_;
};

// Sets `places` to the byte range of each token in the text; false if the tokens do not spell it.
// markup: the text spells control tokens; otherwise they have no bytes in it.
bool places_of_tokens(const Tokenizer& tokenizer, const std::vector<int32_t>& tokens,
                      std::string_view text, bool markup,
                      std::vector<std::pair<size_t, size_t>>& places);

}  // namespace trireme
