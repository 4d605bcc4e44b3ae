#include "serving/api/reference.h"

#include <cmath>

#include "engine/core/error.h"
#include "serving/api/endpoint.h"

namespace trireme {
namespace {

const char* kind_words(const Field& field) {
  switch (field.kind) {
    case FieldKind::kBoolean: return "true or false";
    case FieldKind::kInteger: return "integer";
    case FieldKind::kNumber: return "number";
    case FieldKind::kString: return "string";
    case FieldKind::kObject: return "object";
    case FieldKind::kArray: return "array";
    case FieldKind::kOther: return "see right";
  }
  return "";
}

std::string number(double value) {
  if (value != std::floor(value) || std::abs(value) > 1e15) return concat(value);
  return concat(static_cast<int64_t>(value));
}

std::string range_words(const Field& field) {
  if (!field.words.empty()) {
    std::string out;
    for (const std::string& word : field.words) out += concat(out.empty() ? "`" : ", `", word, "`");
    return out;
  }
  const bool least = std::isfinite(field.min), most = std::isfinite(field.max);
  if (least && most) return concat(number(field.min), " to ", number(field.max));
  if (least) return concat("from ", number(field.min));
  return most ? concat("up to ", number(field.max)) : "";
}

std::string default_words(const Field& field) {
  if (field.is_required) return "required";
  return field.default_json.empty() ? "" : concat("`", field.default_json, "`");
}

std::string table(const Endpoint& endpoint) {
  std::string out = concat("## ", endpoint.path, "\n\n",
                           "| field | kind | values | default | |\n|---|---|---|---|---|\n");
  for (const Field& field : endpoint.fields())
    if (field.status == FieldStatus::kRead)
      out += concat("| `", field.name, "` | ", kind_words(field), " | ", range_words(field), " | ",
                    default_words(field), " | ", field.help, " |\n");
  const auto list = [&](FieldStatus status, const char* words, bool with_help) {
    std::string names;
    for (const Field& field : endpoint.fields()) {
      if (field.status != status) continue;
      names += concat(names.empty() ? "" : ", ", "`", field.name, "`");
      if (with_help) names += concat(" (", field.help, ")");
    }
    if (!names.empty()) out += concat("\n", words, names, ".\n");
  };
  list(FieldStatus::kIgnored, "Accepted without effect: ", false);
  list(FieldStatus::kUnavailable, "Answered with 501: ", true);
  list(FieldStatus::kRefused, "Answered with 400: ", true);
  return out + "\n";
}

// The section of successful responses' types; errors are JSON.
std::string response_types() {
  std::string out = "## Responses\n\n| endpoint | Content-Type | |\n|---|---|---|\n";
  for (const Endpoint* endpoint : endpoints()) {
    if (*endpoint->summary == '\0') continue;
    const char* const stream = endpoint->streams ? ", with `stream` `text/event-stream`" : "";
    out += concat("| `", endpoint->method, " ", endpoint->path, "` | `", endpoint->content_type,
                  "`", stream, " | ", endpoint->summary, " |\n");
  }
  return out;
}

}  // namespace

std::string api_reference() {
  std::string out =
      "# Fields of requests\n\n"
      "`null` stands for absent everywhere. Fields that are in no table are ignored, and logged "
      "once.\n\n";
  for (const Endpoint* endpoint : endpoints())
    if (endpoint->fields != nullptr) out += table(*endpoint);
  return out + response_types();
}

}  // namespace trireme
