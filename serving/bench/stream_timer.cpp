#include "serving/bench/stream_timer.h"

#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/io/strict_json.h"

namespace trireme {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxErrorBytes = 300;

const Json* member(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto at = object.find(name);
  return at == object.end() || at->is_null() ? nullptr : &*at;
}

bool has_text(const Json& object, const char* name) {
  const Json* text = member(object, name);
  return text != nullptr && text->is_string() && !text->get_ref<const std::string&>().empty();
}

bool has_tokens(const Json& choice, bool chat) {
  if (!chat) return has_text(choice, "text") || member(choice, "finish_reason") == nullptr;
  const Json* delta = member(choice, "delta");
  if (delta == nullptr) return false;
  for (const char* name : {"content", "reasoning_content", "reasoning", "refusal"})
    if (has_text(*delta, name)) return true;
  if (member(*delta, "tool_calls") != nullptr) return true;
  return member(*delta, "role") == nullptr && member(choice, "finish_reason") == nullptr;
}

int64_t count_of(const Json& usage, const char* name) {
  const Json* count = member(usage, name);
  return count == nullptr ? 0 : strict_size(*count, concat("usage.", name));
}

}  // namespace

std::string error_message_of(const std::string& body) {
  const Json value = parse_json_text<Json>(body);
  const Json* error = value.is_discarded() ? nullptr : member(value, "error");
  const Json* message = error == nullptr ? nullptr : member(*error, "message");
  const std::string text =
      message != nullptr && message->is_string() ? message->get<std::string>() : body;
  return text.substr(0, kMaxErrorBytes);
}

void StreamTimer::event(const std::string& data, double seconds) {
  if (data == "[DONE]") {
    ended_ = true;
    return;
  }
  const Json value = parse_json_text<Json>(data);
  if (!value.is_object())
    fail_input("expected an event with a JSON object, got ", data.substr(0, 100));
  if (member(value, "error") != nullptr) throw InputError(error_message_of(data));
  if (const Json* usage = member(value, "usage"); usage != nullptr) {
    has_usage_ = true;
    outcome_.input_tokens = count_of(*usage, "prompt_tokens");
    outcome_.output_tokens = count_of(*usage, "completion_tokens");
  }
  const Json* choices = member(value, "choices");
  if (choices == nullptr || !choices->is_array() || choices->empty()) return;
  bool tokens = false;
  for (const Json& choice : *choices) {
    tokens = tokens || has_tokens(choice, chat_);
    ended_ = ended_ || member(choice, "finish_reason") != nullptr;
  }
  outcome_.e2el = seconds;
  if (!tokens) return;
  ++token_events_;
  if (!begun_)
    outcome_.ttft = seconds;
  else
    outcome_.itl.push_back(seconds - last_);
  begun_ = true;
  last_ = seconds;
}

void StreamTimer::finish(int64_t known_input_tokens) {
  if (!ended_) fail_input("the stream ended before its last event");
  if (!has_usage_) {
    outcome_.input_tokens = known_input_tokens;
    outcome_.output_tokens = token_events_;
  }
  if (outcome_.output_tokens == 0) fail_input("the response has no tokens");
  if (!begun_) outcome_.ttft = outcome_.e2el;  // none of its tokens had text
}

}  // namespace trireme
