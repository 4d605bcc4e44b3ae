#include "training/data/examples/message_place.h"

#include <nlohmann/json.hpp>

namespace trireme {
namespace {

constexpr const char* kSpaces = " \t\r\n";
constexpr std::string_view kThought = "</think>";

// Adds marks inside surrounding white space, which templates strip, and after the thinking, which
// templates remove.
std::string marked(const std::string& text, const std::string& mark) {
  const size_t first = text.find_first_not_of(kSpaces), last = text.find_last_not_of(kSpaces);
  if (first == std::string::npos) return text;
  std::string out = text;
  out.insert(last + 1, mark);
  if (const size_t thought = text.rfind(kThought); thought != std::string::npos) {
    const size_t answer = text.find_first_not_of(kSpaces, thought + kThought.size());
    if (answer != std::string::npos) out.insert(answer, mark);
  }
  return out.insert(first, mark);
}

// Marks all strings in a value, except those that name types, roles and ids.
void mark_texts(Json& value, const std::string& mark) {
  if (value.is_string()) value = marked(value.get<std::string>(), mark);
  if (value.is_array())
    for (Json& item : value) mark_texts(item, mark);
  if (!value.is_object()) return;
  for (auto& [name, item] : value.items())
    if (name != "role" && name != "type" && name != "id" && name != "tool_call_id" &&
        name != "weight")
      mark_texts(item, mark);
}

}  // namespace

Json with_marks(const Json& messages, size_t index, const std::string& mark) {
  Json out = messages;
  mark_texts(out[index], mark);
  return out;
}

std::optional<std::pair<size_t, size_t>> take_out_marks(std::string& text,
                                                        const std::string& mark) {
  std::string out;
  size_t copied = 0, first = 0;
  bool found = false;
  for (size_t at; (at = text.find(mark, copied)) != std::string::npos;) {
    out.append(text, copied, at - copied);
    copied = at + mark.size();
    if (!found) first = out.size();
    found = true;
  }
  if (!found) return std::nullopt;
  const size_t last = out.size();
  out.append(text, copied);
  text = std::move(out);
  return std::pair(first, last);
}

}  // namespace trireme
