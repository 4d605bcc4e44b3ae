// One record of a fine-tuning file as tokens, and which of them the model learns.
//
//   {"messages": [{"role": ..., "content": ...}, ...]}       written out by the chat template
//   {"conversations": [{"from": ..., "value": ...}, ...]}    the same in ShareGPT's words
//   {"prompt": ..., "completion": ...}   two strings, joined as they are, or two lists of messages
//   {"instruction": ..., "input": ..., "output": ...}   Alpaca: with a chat template two messages, of which
//                                        the first joins instruction and input by a line end; without one
//                                        the text of Stanford's Alpaca
//   {"text": ...}                        a document
//   {"prompt": ..., "chosen": ..., "rejected": ...}   a pair of answers, each as a completion (preferences)
// Members beside these are not looked at, but for "tools" and "system".
//
// What is learned: of messages what the assistant wrote, its mark of the end included: what stands between
// {% generation %} tags, or where the template has none, what the conversation gains when an assistant's
// message is added to the ones before it and the template's generation prompt. Of a completion all of it; of
// a document everything. Text that no template wrote ends with the tokenizer's end of document.
//
// The text is tokenised as a whole, with the template's markup parsed, but not what spells it in a message
// (engine/text/conversation.h); a token that any byte of a learned
// range belongs to is learned. Where tokens do not spell the text (a normalizer changed it), the parts are
// tokenised on their own.
#pragma once

#include <array>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/text/conversation.h"
#include "engine/text/tokenizer.h"

namespace trireme {

struct Example {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> learned;  // (tokens)
};

class ExampleReader {
 public:
  using Json = nlohmann::ordered_json;
  // chat_template: source; empty: there is none. assistant_only: else everything is learned. markup_in_messages:
  // special tokens that messages spell are those tokens.
  ExampleReader(const Tokenizer& tokenizer, const std::string& chat_template, bool assistant_only,
                bool markup_in_messages = false);

  // InputError for a record of no known form, and for what the template refuses.
  Example read(const Json& record) const;
  // Chosen and rejected, each behind the prompt.
  std::array<Example, 2> read_pair(const Json& record) const;

 private:
  using Ranges = std::vector<std::pair<size_t, size_t>>;  // of bytes
  WrittenConversation render(const Json& messages, const Json& record,
                             bool generation_prompt) const;
  std::string written(const Json& messages, size_t count, const Json& record) const;
  Example conversation(const Json& messages, const Json& record) const;
  Example answer(const Json& prompt, const Json& completion, const Json& record) const;
  Example alpaca(const Json& record) const;
  Example document(const std::string& text, size_t learned_from) const;
  Ranges assistant_ranges(const Json& messages, const Json& record, const RenderedChat& chat) const;
  Example tokenize(const std::string& text, const Ranges& learned,
                   const EncodeOptions& options) const;
  Example tokenize_parts(const std::string& text, const Ranges& learned,
                         const EncodeOptions& options) const;

  const Tokenizer& tokenizer_;
  std::unique_ptr<const ChatTemplate> template_;
  std::unique_ptr<const ConversationWriter> writer_;
  bool assistant_only_;
};

// Where in the text each token's bytes lie; false where the tokens do not spell it. markup: control tokens
// in the text are themselves, else they stand for nothing in it.
bool places_of_tokens(const Tokenizer& tokenizer, const std::vector<int32_t>& tokens,
                      std::string_view text, bool markup,
                      std::vector<std::pair<size_t, size_t>>& places);

}  // namespace trireme
