#include "serving/api/response_context.h"

#include <functional>

#include "engine/core/error.h"

namespace trireme {

const std::vector<int32_t>& ResponseContext::prompt_of(size_t choice) const {
  return prompts[choice / static_cast<size_t>(form.n)];
}

size_t ResponseContext::first_of_prompt(size_t choice) const {
  return choice - choice % static_cast<size_t>(form.n);
}

void ResponseContext::begin_json(JsonWriter& json) const {
  const char* object = form.chat ? "chat.completion" : "text_completion";
  json.begin_object();
  json.key("id").string(identity.id);
  json.key("object").string(form.chat && form.stream ? "chat.completion.chunk" : object);
  json.key("created").integer(identity.created);
  json.key("model").string(identity.model);
  json.key("system_fingerprint").string(identity.fingerprint);
}

std::string ResponseContext::call_id(size_t choice, int64_t call) const {
  constexpr char kLetters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  const bool mistral = form.tools.format == ToolFormat::kMistral;
  uint64_t state = std::hash<std::string>{}(concat(identity.id, ":", choice, ":", call));
  std::string id = mistral ? "" : "call_";
  for (int i = 0; i < (mistral ? 9 : 24); ++i) {
    state = (state ^ state >> 29) * 0xBF58476D1CE4E5B9u + 0x9E3779B97F4A7C15u;
    id += kLetters[(state >> 33) % 62];
  }
  return id;
}

}  // namespace trireme
