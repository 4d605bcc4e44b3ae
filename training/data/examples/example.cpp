#include "training/data/examples/example.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "training/data/examples/message_place.h"

namespace trireme {

bool places_of_tokens(const Tokenizer& tokenizer, const std::vector<int32_t>& tokens,
                      std::string_view text, bool markup,
                      std::vector<std::pair<size_t, size_t>>& places) {
  places.clear();
  size_t at = 0;
  for (const int32_t id : tokens) {
    std::string piece;
    if (tokenizer.is_control(id)) {
      if (markup) piece = tokenizer.token(id);
      if (!text.substr(at).starts_with(piece)) piece.clear();  // added by the tokenizer
    } else {
      tokenizer.append_bytes(id, piece);
      // Without the space that a tokenizer adds before a first word or after a special token.
      if (!text.substr(at).starts_with(piece) && piece.starts_with(' ')) piece.erase(0, 1);
      if (!text.substr(at).starts_with(piece)) return false;
    }
    places.emplace_back(at, at + piece.size());
    at += piece.size();
  }
  return at == text.size();
}

ExampleReader::ExampleReader(const Tokenizer& tokenizer, const ChatTemplateSources& chat_templates,
                             bool assistant_only, bool parse_special)
    : tokenizer_(tokenizer),
      specials_(special_tokens(tokenizer)),
      assistant_only_(assistant_only),
      parse_special_(parse_special) {
  if (chat_templates.empty()) return;
  template_ = std::make_unique<const ChatTemplate>(chat_templates);
  writer_ = std::make_unique<const ConversationWriter>(*template_, tokenizer, parse_special);
}

WrittenConversation ExampleReader::render(const Json& messages, const Json& record,
                                          bool generation_prompt) const {
  if (writer_ == nullptr)
    fail_input("messages need a chat template, but tokenizer ", tokenizer_.name(),
               " has none: give finetune.chat_template");
  Json variables = {{"messages", messages}, {"add_generation_prompt", generation_prompt}};
  add_record_variables(record, variables);
  return writer_->write(std::move(variables));
}

// Renders the whole conversation; InputError if the template ignores the record's tools or
// documents.
WrittenConversation ExampleReader::render_whole(const Json& messages, const Json& record) const {
  WrittenConversation chat = render(messages, record, false);
  check_all_read(chat);
  return chat;
}

// Rendered text of the first `count` messages and the generation prompt of the next response.
std::string ExampleReader::written(const Json& messages, size_t count, const Json& record) const {
  return count == 0 ? std::string() : render(first_of(messages, count), record, true).text;
}

// Adds the byte range of each response from message `from`: the text that rendering it adds to the
// earlier messages. False if the template renders a response differently when it is the last.
bool ExampleReader::add_gained(const Json& messages, const Json& record, const std::string& text,
                               size_t from, Ranges& ranges) const {
  for (size_t i = from; i < messages.size(); ++i) {
    if (!is_assistant(messages[i]) || !has_loss(messages[i])) continue;
    const std::string before = written(messages, i, record);
    const std::string after = render(first_of(messages, i + 1), record, false).text;
    if (!after.starts_with(before) || !text.starts_with(after)) return false;
    ranges.emplace_back(before.size(), after.size());
  }
  return true;
}

// Byte range of a message in the rendered text, from the start of its first text to the end of its
// last one.
ExampleReader::Range ExampleReader::said(const Json& messages, size_t index, const Json& record,
                                         const std::string& text) const {
  const std::string mark = unused_noncharacter(messages);
  std::string marked = render(with_marks(messages, index, mark), record, false).text;
  const auto place = take_out_marks(marked, mark);
  if (!place || marked != text)
    fail_input("cannot find where the chat template renders message ", index + 1,
               ": mark the assistant's text in the template with {% generation %} and {% "
               "endgeneration %} tags");
  return *place;
}

// Offset after white space and one special token at the start of a text; 0: it does not start so.
size_t ExampleReader::behind_special(std::string_view text) const {
  const size_t first = text.find_first_not_of(" \n");
  size_t end = 0;
  if (first != std::string_view::npos)
    specials_.for_each_prefix(text, first, [&](size_t at, int32_t) { end = at; });
  return end;
}

size_t ExampleReader::end_of_response(const Json& messages, size_t index, const Json& record,
                                      const std::string& text, size_t said_until) const {
  const Json upto = first_of(messages, index + 1);
  const std::string last = render(upto, record, false).text;
  const std::string closing = last.substr(said(upto, index, record, last).second);
  const std::string_view rest = std::string_view(text).substr(said_until);
  if (rest.starts_with(closing)) return said_until + closing.size();
  const bool one_token = closing.find_first_not_of(" \n", behind_special(closing)) == closing.npos;
  const size_t end = behind_special(rest);
  if (!one_token || closing.empty() || end == 0)
    fail_input("the chat template ends message ", index + 1,
               " differently when it is the last one: mark the assistant's text in the template "
               "with {% generation %} and {% endgeneration %} tags");
  return said_until + end;
}

ExampleReader::Range ExampleReader::marked_range(const Json& messages, size_t index,
                                                 const Json& record,
                                                 const WrittenConversation& chat,
                                                 size_t after) const {
  auto [begin, end] = said(messages, index, record, chat.text);
  if (begin < after)
    fail_input("the chat template renders message ", index + 1,
               " before the end of the message that precedes it");
  const std::string asked = index == 0 ? "" : written(messages, index, record);
  const std::string unasked =
      index == 0 ? "" : render(first_of(messages, index), record, false).text;
  const std::string prompt = asked.starts_with(unasked) ? asked.substr(unasked.size()) : "";
  const size_t at = prompt.empty() || prompt.size() > begin
                        ? std::string::npos
                        : chat.text.rfind(prompt, begin - prompt.size());
  const bool is_said = at != std::string::npos && std::ranges::any_of(chat.breaks, [&](size_t b) {
                         return b > at && b <= at + prompt.size();
                       });
  const size_t said_until = end;
  if (at != std::string::npos && at >= after && !is_said) begin = at + prompt.size();
  return {begin, end_of_response(messages, index, record, chat.text, said_until)};
}

// Trained ranges of the assistant's messages, from message `from`.
ExampleReader::Ranges ExampleReader::assistant_ranges(const Json& messages, const Json& record,
                                                      const WrittenConversation& chat,
                                                      size_t from) const {
  Ranges ranges;
  if (!chat.generated.empty()) {
    ranges = chat.generated;
    leave_out_unlearned(messages, record, chat.text, ranges);
    return ranges;
  }
  if (add_gained(messages, record, chat.text, from, ranges)) return ranges;
  ranges.clear();
  size_t after = 0;
  for (size_t i = from; i < messages.size(); ++i) {
    if (!is_assistant(messages[i]) || !has_loss(messages[i])) continue;
    ranges.push_back(marked_range(messages, i, record, chat, after));
    after = ranges.back().second;
  }
  return ranges;
}

// Removes the text of untrained messages from the ranges. A range that overlaps with an untrained
// message of the assistant is removed as a whole.
void ExampleReader::leave_out_unlearned(const Json& messages, const Json& record,
                                        const std::string& text, Ranges& ranges) const {
  for (size_t i = 0; i < messages.size(); ++i) {
    if (has_loss(messages[i])) continue;
    const Range place = said(messages, i, record, text);
    Ranges left;
    for (const auto& [begin, end] : ranges) {
      const bool touches = begin < place.second && place.first < end;
      if (touches && is_assistant(messages[i]) && assistant_only_) continue;
      if (begin < (touches ? place.first : end))
        left.emplace_back(begin, touches ? place.first : end);
      if (touches && place.second < end) left.emplace_back(place.second, end);
    }
    ranges = std::move(left);
  }
}

// Refuses unknown roles: they are usually mistakes, and templates accept any.
void ExampleReader::check_roles(const Json& messages) const {
  constexpr std::array kRoles = {"system", "developer", "user",   "assistant",
                                 "tool",   "function",  "ipython"};
  for (size_t i = 0; i < messages.size(); ++i) {
    const auto role = messages[i]["role"].get<std::string>();
    const auto names = [&](const auto& named) {
      return named.second.find(concat("'", role, "'")) != std::string::npos ||
             named.second.find(concat("\"", role, "\"")) != std::string::npos;
    };
    const bool named = template_ != nullptr && std::ranges::any_of(template_->sources(), names);
    if (!named && std::ranges::find(kRoles, role) == kRoles.end())
      fail_input("message ", i + 1, ": role \"", role.substr(0, 40),
                 "\" is not supported; supported: system, developer, user, assistant, tool, ",
                 "function, ipython and roles that the chat template names; rename it");
  }
}

Example ExampleReader::conversation(const Json& messages, const Json& record) const {
  check_messages(messages, "messages");
  check_roles(messages);
  const WrittenConversation chat = render_whole(messages, record);
  Ranges learned{{0, chat.text.size()}};
  if (assistant_only_)
    learned = assistant_ranges(messages, record, chat, 0);
  else
    leave_out_unlearned(messages, record, chat.text, learned);
  Example example = tokenize(chat.text, learned, {.parse_special = true, .breaks = chat.breaks});
  example.unread_members = chat.unread_members;
  return example;
}

Example ExampleReader::completion_example(const Json& prompt, const Json& completion,
                                          const Json& record) const {
  if (prompt.is_string() && completion.is_string()) {
    const auto asked = prompt.get<std::string>();
    return document(asked + completion.get<std::string>(), assistant_only_ ? asked.size() : 0);
  }
  Json messages =
      prompt.is_string() ? Json::array({text_message("user", prompt.get<std::string>())}) : prompt;
  check_messages(messages, "prompt");
  check_messages(completion, "completion");
  check_roles(messages);
  check_roles(completion);
  const size_t asked = messages.size();
  messages.insert(messages.end(), completion.begin(), completion.end());
  const std::string before = written(messages, asked, record);
  const WrittenConversation chat = render_whole(messages, record);
  Ranges learned{{assistant_only_ ? before.size() : 0, chat.text.size()}};
  if (assistant_only_ && !chat.text.starts_with(before)) {
    WrittenConversation whole = chat;
    whole.generated.clear();  // they include responses in the prompt
    learned = assistant_ranges(messages, record, whole, asked);
  } else {
    leave_out_unlearned(messages, record, chat.text, learned);
  }
  Example example = tokenize(chat.text, learned, {.parse_special = true, .breaks = chat.breaks});
  example.unread_members = chat.unread_members;
  return example;
}

Example ExampleReader::alpaca(const Json& record) const {
  const std::string instruction = record_text(record, "instruction"),
                    input = record_text(record, "input");
  const std::string output = record_text(record, "output"), system = record_text(record, "system");
  if (template_ == nullptr) {
    const std::string prompt = alpaca_prompt(instruction, input);
    return document(prompt + output, assistant_only_ ? prompt.size() : 0);
  }
  Json messages = Json::array();
  if (!system.empty()) messages.push_back(text_message("system", system));
  messages.push_back(
      text_message("user", input.empty() ? instruction : concat(instruction, "\n", input)));
  messages.push_back(text_message("assistant", output));
  return conversation(messages, record);
}

Example ExampleReader::document(const std::string& text, size_t learned_from) const {
  // A text that starts with the beginning-of-text token does not get a second one.
  const int32_t bos = tokenizer_.bos_id();
  const bool has_beginning = parse_special_ && bos >= 0 && text.starts_with(tokenizer_.token(bos));
  Example example = tokenize(text, {{learned_from, text.size()}},
                             {.add_special = !has_beginning, .parse_special = parse_special_});
  const int32_t end = tokenizer_.eod_id();
  if (end >= 0 && (example.tokens.empty() || example.tokens.back() != end)) {
    example.tokens.push_back(end);
    example.loss_mask.push_back(1);
  }
  for (size_t at = 0; !parse_special_ && !example.spells_markup && at < text.size(); ++at)
    if (specials_.can_begin_with(text[at]))
      specials_.for_each_prefix(text, at, [&](size_t, int32_t) { example.spells_markup = true; });
  return example;
}

Example ExampleReader::read(const Json& record) const {
  if (!record.is_object()) fail_input("expected an object");
  const auto member = [&](const char* name) { return record_member(record, name); };
  if (const Json* messages = member("messages")) return conversation(*messages, record);
  if (member("conversations") != nullptr)
    return conversation(messages_of_conversations(record), record);
  const Json *prompt = member("prompt"), *completion = member("completion");
  if (prompt != nullptr && completion != nullptr)
    return completion_example(*prompt, *completion, record);
  if (member("instruction") != nullptr && member("output") != nullptr) return alpaca(record);
  if (member("text") != nullptr) return document(record_text(record, "text"), 0);
  fail_input("expected \"messages\", \"conversations\", \"prompt\" with \"completion\", ",
             "\"instruction\" with \"output\", or \"text\"");
}

std::array<Example, 2> ExampleReader::read_pair(const Json& record) const {
  if (!record.is_object()) fail_input("expected an object");
  const Json pair = preference_pair(record);
  return {completion_example(pair["prompt"], pair["chosen"], record),
          completion_example(pair["prompt"], pair["rejected"], record)};
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
    // Tokens that the tokenizer adds after the text are trained on if the end of the text is.
    if (in && begin == end) in = begin == text.size() && learned[range].second == text.size();
    out.loss_mask.push_back(in ? 1 : 0);
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
    out.loss_mask.resize(out.tokens.size(), mark);
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
