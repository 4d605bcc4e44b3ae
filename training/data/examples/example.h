// Fine-tuning record as tokens, with a mask of the tokens that the model trains on.
//
// Record forms
//   {"messages": [{"role": ..., "content": ...}, ...]}
//       written by the chat template
//   {"conversations": [{"from": ..., "value": ...}, ...]}
//       ShareGPT's names for the same; "system" before them
//   {"prompt": ..., "completion": ...}
//       two strings, concatenated, or two lists of messages
//   {"instruction": ..., "input": ..., "output": ...}
//       Alpaca: with a chat template two messages, the first of which joins instruction and input
//       with a line end; without one, the text of Stanford's Alpaca
//   {"text": ...}
//       a document
//   {"prompt": ..., "chosen": ..., "rejected": ...}
//       a pair of responses, each as a completion (preferences; the forms are in
//       training/data/examples/record.h)
// Other members are ignored, except "system" and the template's variables beside messages: "tools"
// (a list, or its text), "documents" and "chat_template_kwargs" (further variables). Tools or
// documents that the template does not read are an error.
//
// Trained tokens of messages: those that the assistant wrote, including its end mark. If the
// template has {% generation %} tags, that is the text between them. Otherwise it is the text that
// an assistant's message adds to the conversation of the previous messages and the template's
// generation prompt. Some templates write a response differently when messages follow it. For these
// the place of the message is found with marks (training/data/examples/message_place.h): the range
// begins after the generation prompt if that precedes the response, else with the message's text.
// It ends after the text that the template writes after a last message, or after the single special
// token that replaces it. A message with "weight": 0 or "train": false is not trained on. All
// tokens of a completion or a document are trained on. Text that no template wrote ends with the
// tokenizer's end of document.
//
// The text is tokenised as a whole. Markup of the template is parsed; text that spells it, in a
// message (engine/text/conversation.h) or outside a template, is not. A token is trained on if any
// of its bytes is in a trained range. If the tokens do not spell the text (a normalizer changed
// it), the parts are tokenised separately.
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
  std::vector<uint8_t> learned;  // (tokens)
  bool spells_markup = false;  // special tokens spelled in text that no template wrote remain text
  // Members of messages with text that the template did not read (WrittenConversation).
  std::vector<std::string> unread_members = {};
};

class ExampleReader {
 public:
  // chat_templates: empty if there is none. assistant_only: false trains on all tokens.
  // parse_special: parses special tokens spelled in messages and texts.
  ExampleReader(const Tokenizer& tokenizer, const ChatTemplateSources& chat_templates,
                bool assistant_only, bool parse_special = false);

  // InputError for a record of no known form, and for one that the template refuses.
  Example read(const Json& record) const;
  // Chosen and rejected, each after the prompt.
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

// Byte ranges of the tokens in the text; false if the tokens do not spell it. markup: control
// tokens in the text are parsed as such; otherwise they have no bytes in it.
bool places_of_tokens(const Tokenizer& tokenizer, const std::vector<int32_t>& tokens,
                      std::string_view text, bool markup,
                      std::vector<std::pair<size_t, size_t>>& places);

}  // namespace trireme
