// One record of a fine-tuning file as tokens, and which of them the model learns.
//
//   {"messages": [{"role": ..., "content": ...}, ...]}       written out by the chat template
//   {"conversations": [{"from": ..., "value": ...}, ...]}    the same in ShareGPT's words; "system" before them
//   {"prompt": ..., "completion": ...}   two strings, joined as they are, or two lists of messages
//   {"instruction": ..., "input": ..., "output": ...}   Alpaca: with a chat template two messages, of which
//                                        the first joins instruction and input by a line end; without one
//                                        the text of Stanford's Alpaca
//   {"text": ...}                        a document
//   {"prompt": ..., "chosen": ..., "rejected": ...}   a pair of answers, each as a completion (preferences;
//                                        training/data/examples/record.h has the forms)
// Members beside these are not looked at, but for "system", and what the template is given beside
// messages: "tools" (a list, or its text), "documents" and "chat_template_kwargs" (variables of its
// own). Tools or documents that the template does not look at are an error.
//
// What is learned: of messages what the assistant wrote, its mark of the end included: what stands
// between {% generation %} tags, or where the template has none, what the conversation gains when
// an assistant's message is added to the ones before it and the template's generation prompt. A
// template that writes answers in another way when more follow is asked with marks
// (training/data/examples/message_place.h): what is learned begins behind the generation prompt,
// where that stands before the answer, else with what the message says, and ends behind what the
// template writes after it when it is the last, or behind the one special token that stands in that
// one's place. A message with "weight": 0 or "train": false is not learned. Of a completion all is
// learned; of a document everything. Text that no template wrote ends with the tokenizer's end of
// document.
//
// The text is tokenised as a whole, with the template's markup parsed, but not what spells it in a
// message (engine/text/conversation.h) or in text that no template wrote; a token that any byte of
// a learned range belongs to is learned. Where tokens do not spell the text (a normalizer changed
// it), the parts are tokenised on their own.
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
  bool spells_markup = false;    // text that no template wrote spells special tokens, and is text
  // Members of messages whose text the template did not read (WrittenConversation).
  std::vector<std::string> unread_members = {};
};

class ExampleReader {
 public:
  // chat_templates: empty: there is none. assistant_only: else everything is learned.
  // parse_special: special tokens that messages and texts spell are those tokens.
  ExampleReader(const Tokenizer& tokenizer, const ChatTemplateSources& chat_templates,
                bool assistant_only, bool parse_special = false);

  // InputError for a record of no known form, and for what the template refuses.
  Example read(const Json& record) const;
  // Chosen and rejected, each behind the prompt.
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
  Example answer(const Json& prompt, const Json& completion, const Json& record) const;
  Example alpaca(const Json& record) const;
  Example document(const std::string& text, size_t learned_from) const;
  Ranges assistant_ranges(const Json& messages, const Json& record, const WrittenConversation& chat,
                          size_t from) const;
  bool add_gained(const Json& messages, const Json& record, const std::string& text, size_t from,
                  Ranges& ranges) const;
  Range marked_range(const Json& messages, size_t index, const Json& record,
                     const WrittenConversation& chat, size_t after) const;
  Range said(const Json& messages, size_t index, const Json& record, const std::string& text) const;
  size_t end_of_answer(const Json& messages, size_t index, const Json& record,
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

// Where in the text each token's bytes lie; false where the tokens do not spell it. markup: control
// tokens in the text are themselves, else they stand for nothing in it.
bool places_of_tokens(const Tokenizer& tokenizer, const std::vector<int32_t>& tokens,
                      std::string_view text, bool markup,
                      std::vector<std::pair<size_t, size_t>>& places);

}  // namespace trireme
