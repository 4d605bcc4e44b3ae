#include "training/data/examples/record.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"

namespace trireme {
namespace {

// Role for the "from" of a ShareGPT turn.
std::string role_of(const std::string& from) {
  if (from == "human") return "user";
  if (from == "gpt") return "assistant";
  return from == "observation" ? "tool" : from;
}

Json as_messages(const Json& value, const char* role, const char* name) {
  if (value.is_string()) return Json::array({text_message(role, value.get<std::string>())});
  check_messages(value, name);
  return value;
}

Json rest_of(const Json& messages, size_t from) {
  return Json(messages.begin() + static_cast<std::ptrdiff_t>(from), messages.end());
}

// Number of messages in the common prefix of two lists, of which at least one message remains in
// each.
size_t shared_beginning(const Json& a, const Json& b) {
  const size_t most = std::min(a.size(), b.size());
  size_t n = 0;
  while (n + 1 < most && a[n] == b[n]) ++n;
  return n;
}

bool begins_with(const Json& messages, const Json& first) {
  return messages.size() > first.size() && std::equal(first.begin(), first.end(), messages.begin());
}

bool says(const Json& messages, size_t count, const Json& text) {
  for (size_t i = 0; i < count; ++i)
    if (messages[i].contains("content") && messages[i]["content"] == text) return true;
  return false;
}

// Common prefix of two texts, up to a word boundary.
std::string shared_beginning(const std::string& a, const std::string& b) {
  const auto n = static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  // The space before a word belongs to the response, since tokenizers attach it to the word.
  const size_t space = n == 0 ? std::string::npos : a.find_last_of(" \n", n - 1);
  if (space == std::string::npos) return "";
  return a.substr(0, a[space] == ' ' ? space : space + 1);
}

void check_content(const Json& message, const std::string& where) {
  const Json *content = record_member(message, "content"),
             *calls = record_member(message, "tool_calls");
  if (content == nullptr) {
    if (is_assistant(message) && calls != nullptr && !calls->empty()) return;
    fail_input(where, " has no \"content\"", is_assistant(message) ? " and no \"tool_calls\"" : "",
               "; give it one, or leave the record out");
  }
  const auto is_part = [](const Json& part) { return part.is_object() && part.contains("type"); };
  const bool is_result = message["role"] == "tool" && content->is_object();
  if (!content->is_string() && !is_result &&
      !(content->is_array() && std::ranges::all_of(*content, is_part)))
    fail_input(where, " has the \"content\" ", content->dump().substr(0, 40),
               "; give a string, or a list of parts, such as {\"type\": \"text\", \"text\": ...}");
}

bool says_nothing(const Json& response) {
  if (!response.is_array()) return response == "";
  return std::ranges::all_of(response, [](const Json& message) {
    return record_member(message, "tool_calls") == nullptr && message["content"] == "";
  });
}

Json pair_of(Json prompt, Json chosen, Json rejected) {
  if (chosen == rejected)
    fail_input("\"chosen\" and \"rejected\" are the same, so the pair shows no preference; ",
               "leave the record out");
  for (const Json* response : {&chosen, &rejected})
    if (says_nothing(*response))
      fail_input("\"", response == &chosen ? "chosen" : "rejected",
                 "\" is empty; give a response, or leave the record out");
  return {{"prompt", std::move(prompt)},
          {"chosen", std::move(chosen)},
          {"rejected", std::move(rejected)}};
}

Json pair_without_prompt(const Json& chosen, const Json& rejected) {
  constexpr const char* kAdvice = ": give the \"prompt\"";
  if (chosen.is_string() && rejected.is_string()) {
    const auto a = chosen.get<std::string>(), b = rejected.get<std::string>();
    const std::string prompt = shared_beginning(a, b);
    if (prompt.empty()) fail_input("\"chosen\" and \"rejected\" have no common prefix", kAdvice);
    return pair_of(prompt, a.substr(prompt.size()), b.substr(prompt.size()));
  }
  check_messages(chosen, "chosen");
  check_messages(rejected, "rejected");
  const size_t shared = shared_beginning(chosen, rejected);
  if (shared == 0) fail_input("\"chosen\" and \"rejected\" have no common first message", kAdvice);
  return pair_of(first_of(chosen, shared), rest_of(chosen, shared), rest_of(rejected, shared));
}

}  // namespace

const Json* record_member(const Json& record, const char* name) {
  const auto found = record.find(name);
  return found == record.end() || found->is_null() ? nullptr : &*found;
}

std::string record_text(const Json& record, const char* name) {
  const Json* value = record_member(record, name);
  if (value == nullptr) return "";
  if (!value->is_string()) fail_input("\"", name, "\": expected a string");
  return value->get<std::string>();
}

void check_messages(const Json& messages, const char* name) {
  if (!messages.is_array()) fail_input("\"", name, "\": expected a list of messages");
  size_t number = 0;
  for (const Json& message : messages) {
    const std::string where = concat("message ", ++number, " of \"", name, "\"");
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
      fail_input("\"", name, "\" has a message without a \"role\"");
    if (const Json* weight = record_member(message, "weight"))
      if (!weight->is_number() || (*weight != 0 && *weight != 1))
        fail_input("\"", name, "\" has a message with \"weight\" ", weight->dump().substr(0, 40),
                   ", expected 0 or 1");
    if (const Json* train = record_member(message, "train"))
      if (!train->is_boolean())
        fail_input("\"", name, "\" has a message with \"train\" ", train->dump().substr(0, 40),
                   ", expected true or false");
    check_content(message, where);
  }
}

Json first_of(const Json& messages, size_t count) {
  return Json(messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(count));
}

bool is_assistant(const Json& message) { return message["role"] == "assistant"; }

bool has_loss(const Json& message) {
  const Json *weight = record_member(message, "weight"), *train = record_member(message, "train");
  return (weight == nullptr || *weight != 0) && (train == nullptr || *train != false);
}

void add_record_variables(const Json& record, Json& variables) {
  for (const char* name : {"tools", "documents"})
    if (const Json* value = record_member(record, name)) variables[name] = *value;
  const Json* more = record_member(record, "chat_template_kwargs");
  if (more == nullptr) return;
  if (!more->is_object()) fail_input("\"chat_template_kwargs\": expected an object");
  for (const auto& [name, value] : more->items()) {
    if (variables.contains(name) || name == "tools" || name == "documents" ||
        name == "chat_template" || name == "continue_final_message")
      fail_input("\"chat_template_kwargs\" has \"", name,
                 "\", a reserved name: only other variables of the template can be set");
    variables[name] = value;
  }
}

Json text_message(const char* role, std::string content) {
  return {{"role", role}, {"content", std::move(content)}};
}

Json messages_of_conversations(const Json& record) {
  const Json& turns = record["conversations"];
  if (!turns.is_array()) fail_input("\"conversations\": expected a list");
  Json messages = Json::array();
  for (const Json& turn : turns) {
    if (!turn.is_object()) fail_input("\"conversations\" has a turn that is not an object");
    const std::string role = role_of(record_text(turn, "from"));
    if (role.empty()) fail_input("\"conversations\" has a turn without \"from\"");
    if (record_member(turn, "value") == nullptr)
      fail_input("turn ", messages.size() + 1, " of \"conversations\" has no \"value\"; give it ",
                 "one, or leave the record out");
    messages.push_back(text_message(role.c_str(), record_text(turn, "value")));
    for (const auto& [name, value] : turn.items())
      if (name != "from" && name != "value" && !value.is_null() && !messages.back().contains(name))
        messages.back()[name] = value;
  }
  const std::string system = record_text(record, "system");
  const bool has_own = !messages.empty() && messages[0]["role"] == "system";
  if (!system.empty() && has_own)
    fail_input("the record has \"system\", but \"conversations\" begins with one too; keep one");
  if (!system.empty()) messages.insert(messages.begin(), text_message("system", system));
  return messages;
}

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

Json preference_pair(const Json& record) {
  const Json* prompt = record_member(record, "prompt");
  const Json* chosen = record_member(record, "chosen");
  const Json* rejected = record_member(record, "rejected");
  if (chosen == nullptr || rejected == nullptr)
    fail_input("expected both \"chosen\" and \"rejected\"");
  if (prompt == nullptr) return pair_without_prompt(*chosen, *rejected);
  if (prompt->is_string() && chosen->is_string() && rejected->is_string())
    return pair_of(*prompt, *chosen, *rejected);
  const Json asked = as_messages(*prompt, "user", "prompt");
  const Json a = as_messages(*chosen, "assistant", "chosen");
  const Json b = as_messages(*rejected, "assistant", "rejected");
  if (begins_with(a, asked) && begins_with(b, asked))
    return pair_of(asked, rest_of(a, asked.size()), rest_of(b, asked.size()));
  // A prompt given as text may be repeated at the start of both conversations.
  const size_t shared = shared_beginning(a, b);
  if (prompt->is_string() && says(a, shared, *prompt))
    return pair_of(first_of(a, shared), rest_of(a, shared), rest_of(b, shared));
  return pair_of(asked, a, b);
}

}  // namespace trireme
