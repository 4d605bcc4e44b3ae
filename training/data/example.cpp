#include "training/data/example.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"

namespace trireme {
namespace {

using Json = ExampleReader::Json;

const Json* member(const Json& record, const char* name) {
  const auto found = record.find(name);
  return found == record.end() || found->is_null() ? nullptr : &*found;
}

std::string text_of(const Json& record, const char* name) {
  const Json* value = member(record, name);
  if (value == nullptr) return "";
  if (!value->is_string()) fail_input("\"", name, "\" is no string");
  return value->get<std::string>();
}

void check_messages(const Json& messages, const char* name) {
  if (!messages.is_array()) fail_input("\"", name, "\" is no list of messages");
  for (const Json& message : messages)
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
      fail_input("\"", name, "\" holds a message without a \"role\"");
}

bool is_assistant(const Json& message) { return message["role"] == "assistant"; }

// ShareGPT's words for who speaks.
Json messages_of_conversations(const Json& turns) {
  if (!turns.is_array()) fail_input("\"conversations\" is no list");
  Json messages = Json::array();
  for (const Json& turn : turns) {
    if (!turn.is_object()) fail_input("\"conversations\" holds what is no object");
    const std::string from = text_of(turn, "from");
    const std::string role = from == "human"         ? "user"
                             : from == "gpt"         ? "assistant"
                             : from == "observation" ? "tool"
                                                     : from;
    if (role.empty()) fail_input("\"conversations\" holds a turn without \"from\"");
    messages.push_back({{"role", role}, {"content", text_of(turn, "value")}});
  }
  return messages;
}

// Taori et al. 2023, the text that Alpaca was trained with.
std::string alpaca_prompt(const std::string& instruction, const std::string& input) {
  if (input.empty())
    return concat(
        "Below is an instruction that describes a task. Write a response that appropriately "
        "completes the request.\n\n### Instruction:\n",
        instruction, "\n\n### Response:\n");
  return concat(
      "Below is an instruction that describes a task, paired with an input that provides further "
      "context. Write a response that appropriately completes the request.\n\n### Instruction:\n",
      instruction, "\n\n### Input:\n", input, "\n\n### Response:\n");
}

Json message(const char* role, std::string content) {
  return {{"role", role}, {"content", std::move(content)}};
}

}  // namespace

bool places_of_tokens(const Tokenizer& tokenizer, const std::vector<int32_t>& tokens,
                      std::string_view text, bool markup,
                      std::vector<std::pair<size_t, size_t>>& places) {
  places.clear();
  size_t at = 0;
  bool at_start = true;
  for (const int32_t id : tokens) {
    std::string piece;
    if (tokenizer.is_control(id)) {
      if (markup) piece = tokenizer.token(id);
      if (!text.substr(at).starts_with(piece)) piece.clear();  // put there by the tokenizer
    } else {
      tokenizer.append_bytes(id, at_start, piece);
      at_start = false;
      // The space that a tokenizer puts before a first word, behind markup too.
      if (!text.substr(at).starts_with(piece) && piece.starts_with(' ')) piece.erase(0, 1);
      if (!text.substr(at).starts_with(piece)) return false;
    }
    places.emplace_back(at, at + piece.size());
    at += piece.size();
  }
  return at == text.size();
}

ExampleReader::ExampleReader(const Tokenizer& tokenizer, const std::string& chat_template,
                             bool assistant_only, bool markup_in_messages)
    : tokenizer_(tokenizer), assistant_only_(assistant_only) {
  if (chat_template.empty()) return;
  template_ = std::make_unique<const ChatTemplate>(chat_template);
  writer_ = std::make_unique<const ConversationWriter>(*template_, tokenizer, markup_in_messages);
}

WrittenConversation ExampleReader::render(const Json& messages, const Json& record,
                                          bool generation_prompt) const {
  if (writer_ == nullptr)
    fail_input("messages need a chat template, and tokenizer ", tokenizer_.name(),
               " has none: give finetune.chat_template");
  Json variables = {{"messages", messages}, {"add_generation_prompt", generation_prompt}};
  if (const Json* tools = member(record, "tools")) variables["tools"] = *tools;
  return writer_->write(std::move(variables));
}

// The first messages and the beginning of an answer to them.
std::string ExampleReader::written(const Json& messages, size_t count, const Json& record) const {
  const auto last = messages.begin() + static_cast<std::ptrdiff_t>(count);
  return count == 0 ? std::string() : render(Json(messages.begin(), last), record, true).text;
}

ExampleReader::Ranges ExampleReader::assistant_ranges(const Json& messages, const Json& record,
                                                      const RenderedChat& chat) const {
  if (!chat.generated.empty()) return chat.generated;
  Ranges ranges;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!is_assistant(messages[i])) continue;
    const auto upto = messages.begin() + static_cast<std::ptrdiff_t>(i + 1);
    const std::string before = written(messages, i, record);
    const std::string after = render(Json(messages.begin(), upto), record, false).text;
    if (!after.starts_with(before) || !chat.text.starts_with(after))
      fail_input("the chat template writes message ", i + 1,
                 " in another way when it is the last: mark what an assistant writes in the "
                 "template with {% generation %} and {% endgeneration %}");
    ranges.emplace_back(before.size(), after.size());
  }
  return ranges;
}

Example ExampleReader::conversation(const Json& messages, const Json& record) const {
  check_messages(messages, "messages");
  const WrittenConversation chat = render(messages, record, false);
  const Ranges learned =
      assistant_only_ ? assistant_ranges(messages, record, chat) : Ranges{{0, chat.text.size()}};
  return tokenize(chat.text, learned, {.parse_special = true, .breaks = chat.breaks});
}

Example ExampleReader::answer(const Json& prompt, const Json& completion,
                              const Json& record) const {
  if (prompt.is_string() && completion.is_string()) {
    const auto asked = prompt.get<std::string>();
    return document(asked + completion.get<std::string>(), assistant_only_ ? asked.size() : 0);
  }
  check_messages(prompt, "prompt");
  check_messages(completion, "completion");
  Json messages = prompt;
  messages.insert(messages.end(), completion.begin(), completion.end());
  const std::string before = written(messages, prompt.size(), record);
  const WrittenConversation written_out = render(messages, record, false);
  const std::string& text = written_out.text;
  if (!text.starts_with(before))
    fail_input("the chat template does not begin the completion as its generation prompt does");
  const size_t from = assistant_only_ ? before.size() : 0;
  return tokenize(text, {{from, text.size()}},
                  {.parse_special = true, .breaks = written_out.breaks});
}

Example ExampleReader::alpaca(const Json& record) const {
  const std::string instruction = text_of(record, "instruction"), input = text_of(record, "input");
  const std::string output = text_of(record, "output"), system = text_of(record, "system");
  if (template_ == nullptr) {
    const std::string prompt = alpaca_prompt(instruction, input);
    return document(prompt + output, assistant_only_ ? prompt.size() : 0);
  }
  Json messages = Json::array();
  if (!system.empty()) messages.push_back(message("system", system));
  messages.push_back(
      message("user", input.empty() ? instruction : concat(instruction, "\n", input)));
  messages.push_back(message("assistant", output));
  return conversation(messages, record);
}

Example ExampleReader::document(const std::string& text, size_t learned_from) const {
  Example example = tokenize(text, {{learned_from, text.size()}}, {.add_special = true});
  const int32_t end = tokenizer_.eod_id();
  if (end >= 0 && (example.tokens.empty() || example.tokens.back() != end)) {
    example.tokens.push_back(end);
    example.learned.push_back(1);
  }
  return example;
}

Example ExampleReader::read(const Json& record) const {
  if (!record.is_object()) fail_input("is no object");
  if (const Json* messages = member(record, "messages")) return conversation(*messages, record);
  if (const Json* turns = member(record, "conversations"))
    return conversation(messages_of_conversations(*turns), record);
  const Json* prompt = member(record, "prompt");
  const Json* completion = member(record, "completion");
  if (prompt != nullptr && completion != nullptr) return answer(*prompt, *completion, record);
  if (member(record, "instruction") != nullptr && member(record, "output") != nullptr)
    return alpaca(record);
  if (member(record, "text") != nullptr) return document(text_of(record, "text"), 0);
  fail_input("has none of these: \"messages\", \"conversations\", \"prompt\" with \"completion\", ",
             "\"instruction\" with \"output\", \"text\"");
}

std::array<Example, 2> ExampleReader::read_pair(const Json& record) const {
  if (!record.is_object()) fail_input("is no object");
  const Json* prompt = member(record, "prompt");
  const Json* chosen = member(record, "chosen");
  const Json* rejected = member(record, "rejected");
  if (prompt == nullptr || chosen == nullptr || rejected == nullptr)
    fail_input("has not all of \"prompt\", \"chosen\" and \"rejected\"");
  return {answer(*prompt, *chosen, record), answer(*prompt, *rejected, record)};
}

Example ExampleReader::tokenize(const std::string& text, const Ranges& learned,
                                const EncodeOptions& options) const {
  Example out;
  out.tokens = tokenizer_.encode(text, options);
  Ranges places;
  if (!places_of_tokens(tokenizer_, out.tokens, text, options.parse_special, places))
    return tokenize_parts(text, learned, options);
  size_t range = 0;
  for (const auto& [begin, end] : places) {
    while (range < learned.size() && learned[range].second <= begin && begin < text.size()) ++range;
    bool in = range < learned.size();
    if (in && begin < end) in = learned[range].first < end && begin < learned[range].second;
    // What the tokenizer puts behind the text belongs to the end of it.
    if (in && begin == end) in = begin == text.size() && learned[range].second == text.size();
    out.learned.push_back(in ? 1 : 0);
  }
  return out;
}

Example ExampleReader::tokenize_parts(const std::string& text, const Ranges& learned,
                                      const EncodeOptions& options) const {
  Example out;
  size_t at = 0;
  const auto add = [&](size_t end, uint8_t mark) {
    if (at >= end) return;
    std::vector<size_t> breaks;
    for (const size_t b : options.breaks)
      if (b > at && b <= end) breaks.push_back(b - at);
    const EncodeOptions part{.add_special = options.add_special && at == 0,
                             .parse_special = options.parse_special,
                             .breaks = breaks};
    const std::vector<int32_t> ids = tokenizer_.encode(text.substr(at, end - at), part);
    out.tokens.insert(out.tokens.end(), ids.begin(), ids.end());
    out.learned.resize(out.tokens.size(), mark);
    at = end;
  };
  for (const auto& [begin, end] : learned) {
    add(begin, 0);
    add(end, 1);
  }
  add(text.size(), 0);
  return out;
}

}  // namespace trireme
