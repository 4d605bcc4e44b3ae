#include "engine/text/chat_variables.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>

#include "engine/config/json.h"
#include "engine/core/error.h"
#include "engine/io/strict_json.h"

namespace trireme {
namespace {

// Names of the assistant's reasoning; the first one present is used.
constexpr std::array kReasoning = {"reasoning_content", "thinking", "reasoning"};
// Members that are not text for the model.
constexpr std::array kProtocol = {"role", "type", "id", "tool_call_id", "weight", "train"};
constexpr size_t kMaxUnread = 64;
constexpr const char* kSpaces = " \t\r\n";

template <class Names>
bool is_one_of(const Names& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

// Data sets store tools as text, because their columns have one type.
void read_tools(Json& variables) {
  const auto found = variables.find("tools");
  if (found == variables.end() || !found->is_string()) return;
  Json& tools = *found;
  const auto text = tools.get<std::string>();
  tools = text.empty() ? Json()
                       : parse_strict_json<Json>(text, "\"tools\"",
                                                 {.keys_per_object = 4096, .long_integers = true});
  if (!tools.is_array() && !tools.is_null())
    fail_input("\"tools\" is a string that does not hold a JSON list");
}

// Removes null members of messages, like transformers: clients send "content": null with tool
// calls, and a template would write it as "None".
void read_messages(Json& variables) {
  const auto found = variables.find("messages");
  if (found == variables.end()) return;
  if (!found->is_array()) fail_input("\"messages\" is not a list of messages");
  for (Json& message : *found) {
    if (!message.is_object()) fail_input("\"messages\" has an entry that is not an object");
    Json::object_t kept;
    for (auto& [name, value] : message.items())
      if (!value.is_null()) kept.push_back({name, std::move(value)});
    message = std::move(kept);
  }
}

bool reads_reasoning(const ChatTemplate& chat, const Json& variables) {
  return std::ranges::any_of(kReasoning,
                             [&](const char* name) { return chat.reads_member(name, variables); });
}

// Fills reasoning_content and thinking from one another, like transformers; also "reasoning" if the
// template reads neither.
void fill_reasoning(Json& variables, const ChatTemplate& chat) {
  if (!variables.contains("messages")) return;
  std::optional<bool> only_reasoning;
  for (Json& message : variables["messages"]) {
    const auto own =
        std::ranges::find_if(kReasoning, [&](const char* name) { return message.contains(name); });
    if (own == kReasoning.end()) continue;
    const Json reasoning = message[*own];
    for (const char* name : {"reasoning_content", "thinking"})
      if (!message.contains(name)) message[name] = reasoning;
    if (message.contains("reasoning")) continue;
    if (!only_reasoning)
      only_reasoning = !chat.reads_member("reasoning_content", variables) &&
                       !chat.reads_member("thinking", variables);
    if (*only_reasoning) message["reasoning"] = reasoning;
  }
}

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(kSpaces);
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(kSpaces) + 1 - first);
}

// Text to be continued. In a list of parts: the last text.
std::string* text_of_member(Json& member) {
  if (member.is_string()) return member.get_ptr<std::string*>();
  if (!member.is_array()) return nullptr;
  for (auto part = member.rbegin(); part != member.rend(); ++part)
    if (part->is_object() && part->contains("text") && (*part)["text"].is_string())
      return (*part)["text"].get_ptr<std::string*>();
  return nullptr;
}

std::vector<MessageMember> unread_members(const Json& variables, const ChatTemplate& chat) {
  std::vector<MessageMember> out;
  if (!variables.contains("messages")) return out;
  for (const Json& message : variables["messages"]) {
    for (const auto& [name, value] : message.items()) {
      if (!value.is_string() || is_one_of(kProtocol, name)) continue;
      if (chat.reads_member(name, variables)) continue;
      std::string text = trimmed(value.get_ref<const std::string&>());
      if (text.empty()) continue;
      if (is_one_of(kReasoning, name) && reads_reasoning(chat, variables)) continue;
      out.push_back({name, std::move(text)});
      if (out.size() == kMaxUnread) return out;
    }
  }
  return out;
}

}  // namespace

std::string unused_noncharacter(const Json& value) {
  const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  for (char last = '\x90'; last <= '\xAF'; ++last) {
    std::string mark = {'\xEF', '\xB7', last};
    if (text.find(mark) == std::string::npos) return mark;
  }
  fail_input("a conversation uses every one of the noncharacters U+FDD0 to U+FDEF");
}

std::vector<MessageMember> read_chat_variables(Json& variables, const ChatTemplate& chat) {
  read_messages(variables);
  read_tools(variables);
  std::vector<MessageMember> unread = unread_members(variables, chat);
  fill_reasoning(variables, chat);
  return unread;
}

std::vector<std::string> lost_members(const std::vector<MessageMember>& unread,
                                      const std::string& text) {
  // Linear in the text for any input: a client may send repetitive text.
  const auto holds = [&](const std::string& part) {
    return memmem(text.data(), text.size(), part.data(), part.size()) != nullptr;
  };
  std::vector<std::string> names;
  for (const MessageMember& member : unread) {
    if (is_one_of(names, member.name) || holds(member.text)) continue;
    const std::string quoted =
        Json(member.text).dump(-1, ' ', false, Json::error_handler_t::replace);
    if (!holds(quoted.substr(1, quoted.size() - 2))) names.push_back(member.name);
  }
  return names;
}

std::string text_arguments(const Json& variables) {
  if (!variables.contains("messages") || !variables["messages"].is_array()) return "";
  size_t number = 0;
  for (const Json& message : variables["messages"]) {
    const std::string where = concat("messages[", number++, "].tool_calls[");
    if (!message.is_object() || !message.contains("tool_calls")) continue;
    const Json& calls = message["tool_calls"];
    for (size_t i = 0; calls.is_array() && i < calls.size(); ++i) {
      if (!calls[i].is_object()) continue;
      const bool nested = calls[i].contains("function") && calls[i]["function"].is_object();
      const Json& call = nested ? calls[i]["function"] : calls[i];
      if (call.contains("arguments") && call["arguments"].is_string())
        return concat(where, i, nested ? "].function.arguments" : "].arguments");
    }
  }
  return "";
}

FinalMessage::FinalMessage(Json& variables) {
  const auto found = variables.find("continue_final_message");
  if (found == variables.end()) return;
  const Json given = *found;
  variables.erase("continue_final_message");
  if (given.is_null() || given == false) return;
  if (given != true && !given.is_string())
    fail_input("\"continue_final_message\" is neither true nor false nor the name of a member");
  if (variables.contains("add_generation_prompt") && variables["add_generation_prompt"] == true)
    fail_input(
        "\"continue_final_message\" and \"add_generation_prompt\" exclude each other: the first "
        "continues the last message, the second begins a new one");
  const std::string member = given.is_string() ? given.get<std::string>() : "content";
  Json* messages = variables.contains("messages") ? &variables["messages"] : nullptr;
  std::string* text = nullptr;
  if (messages != nullptr && messages->is_array() && !messages->empty() &&
      messages->back().is_object() && messages->back().contains(member))
    text = text_of_member(messages->back()[member]);
  if (text == nullptr)
    fail_input("\"continue_final_message\": the last message has no text in \"",
               member.substr(0, 64), "\" to continue");
  mark_ = unused_noncharacter(variables);
  *text += mark_ + ' ';
}

void FinalMessage::cut(RenderedChat& chat, std::vector<size_t>& breaks) const {
  if (mark_.empty()) return;
  size_t end = chat.text.rfind(mark_);
  if (end == std::string::npos)
    fail_input(
        "\"continue_final_message\": the chat template does not render the last "
        "message's text unchanged");
  const bool stripped = chat.text.compare(end + mark_.size(), 1, " ") != 0;
  chat.text.resize(end);
  if (stripped) {
    const size_t last = chat.text.find_last_not_of(kSpaces);
    end = last == std::string::npos ? 0 : last + 1;
    chat.text.resize(end);
  }
  std::erase_if(breaks, [&](size_t at) { return at >= end; });
  std::erase_if(chat.generated, [&](const auto& range) { return range.first >= end; });
  for (auto& [begin, range_end] : chat.generated) range_end = std::min(range_end, end);
}

}  // namespace trireme
