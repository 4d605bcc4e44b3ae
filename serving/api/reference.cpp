#include "serving/api/reference.h"

#include <cmath>

#include "engine/core/error.h"
#include "serving/api/endpoint.h"
#include "serving/api/peer_fields.h"

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
  std::string refused;
  for (const Field& field : endpoint.fields())
    if (field.status == FieldStatus::kRefused)
      refused += concat(refused.empty() ? "" : ", ", "`", field.name, "` (", field.help, ")");
  if (!refused.empty()) out += concat("\nRefused with 400: ", refused, ".\n");
  return out + "\n";
}

std::string list_of(std::span<const FieldLetter> meanings, std::string_view letters,
                    const char* quote) {
  std::string out;
  for (const FieldLetter& one : meanings)
    if (letters.find(one.letter) != std::string_view::npos)
      out += concat(out.empty() ? "" : ", ", quote, one.meaning, quote);
  return out;
}

std::string effect_words(const PeerField& row) {
  if (row.effect == PeerEffect::kNoEffect) return concat("no effect: ", row.words);
  std::string nothing;
  for (const std::string& value : values_of(row.nothing))
    nothing += concat(nothing.empty() ? "" : ", ", "`", value, "`");
  if (row.effect == PeerEffect::kRefused)
    return concat("501: ", row.words, nothing.empty() ? "" : concat("; accepted: ", nothing));
  if (*row.words == '\0') return "used";
  return concat("used as `", row.words, "`",
                nothing.empty() ? "" : concat("; no effect: ", nothing));
}

// Section on fields that other servers document.
std::string peer_section() {
  std::string out =
      "## Fields of other servers\n\nFields that OpenAI, vLLM, SGLang, llama.cpp or Ollama "
      "document for these endpoints or for their own equivalents. A field that would change the "
      "result but is not supported is refused with 501, which names it, unless its value leaves "
      "the result unchanged. A field without effect is accepted with any value.\n\n| field | "
      "endpoints | documented by | here |\n|---|---|---|---|\n";
  for (const PeerField& row : peer_fields())
    out += concat("| `", row.name, "` | ", list_of(kPeerEndpoints, row.endpoints, "`"), " | ",
                  list_of(kPeers, row.peers, ""), " | ", effect_words(row), " |\n");
  return out + "\n";
}

// Section on content types of successful responses; errors are JSON.
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
      "# Fields of requests\n\nA field that is `null` counts as absent. Fields that are in no "
      "table are ignored, and logged once.\n\n";
  for (const Endpoint* endpoint : endpoints())
    if (endpoint->fields != nullptr) out += table(*endpoint);
  return out + peer_section() + response_types();
}

}  // namespace trireme
