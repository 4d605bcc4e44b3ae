#include "engine/config/reference.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "engine/config/parse.h"
#include "engine/core/error.h"

namespace trireme {
namespace {

Json type_of(const Key& key) {
  Json types = Json::array();
  switch (key.kind) {
    case KeyKind::kBool: types.push_back("boolean"); break;
    case KeyKind::kInt: types.push_back("integer"); break;
    case KeyKind::kFloat: types.push_back("number"); break;
    case KeyKind::kString: types.push_back("string"); break;
    case KeyKind::kEnum:
    case KeyKind::kAny: return nullptr;
  }
  if (key.allows_null) types.push_back("null");
  return types.size() == 1 ? types[0] : types;
}

std::string description_of(const Key& key) {
  switch (key.status) {
    case KeyStatus::kNoEffect: return "No effect here: " + key.help;
    case KeyStatus::kRefused: return "Refused: " + key.help;
    case KeyStatus::kUnavailable: return "Not available in this version: " + key.help;
    case KeyStatus::kImplemented:
    case KeyStatus::kIgnored: break;
  }
  return key.help;
}

void add_range(const Key& key, Json& row) {
  const auto bound = [&](double value) {
    return key.kind == KeyKind::kInt ? Json(static_cast<int64_t>(value)) : Json(value);
  };
  if (key.min > -1e300) row[key.above_min ? "exclusiveMinimum" : "minimum"] = bound(key.min);
  if (key.max < 1e300) row[key.below_max ? "exclusiveMaximum" : "maximum"] = bound(key.max);
}

// "1f1b" -> "1[fF]1[bB]"
std::string any_case_pattern(const std::string& word) {
  std::string out;
  for (const char c : word) {
    const auto byte = static_cast<unsigned char>(c);
    const char lower = static_cast<char>(std::tolower(byte)),
               upper = static_cast<char>(std::toupper(byte));
    if (std::isalpha(byte) != 0)
      out += {'[', lower, upper, ']'};
    else
      out += std::string_view("^$\\.*+?()[]{}|/").find(c) == std::string_view::npos
                 ? std::string{c}
                 : std::string{'\\', c};
  }
  return out;
}

Json row_of(const Key& key) {
  Json row = {{"description", description_of(key)}};
  if (key.status != KeyStatus::kImplemented) return row;
  if (const Json type = type_of(key); !type.is_null()) row["type"] = type;
  add_range(key, row);
  if (key.kind == KeyKind::kEnum) {
    Json words = Json::array();
    std::string any_case;
    const auto add = [&](const std::string& word) {
      words.push_back(word);
      any_case += concat(any_case.empty() ? "" : "|", any_case_pattern(word));
    };
    for (const std::string& value : key.values) add(value);
    for (const auto& [foreign, value] : key.synonyms) add(foreign);
    if (key.allows_null) words.push_back(nullptr);
    // The words as editors suggest them, and the pattern that the program accepts.
    row["anyOf"] = Json::array(
        {{{"enum", words}}, {{"type", "string"}, {"pattern", concat("^(", any_case, ")$")}}});
  }
  if (key.allows_auto || key.auto_means_default) {
    Json other = row;
    other.erase("description");
    row = {{"description", key.help}, {"anyOf", Json::array({{{"const", "auto"}}, other})}};
  }
  if (!key.default_json.empty()) row["default"] = parse_json(key.default_json, key.path);
  return row;
}

Json& object_at(Json& root, const std::string& section) {
  if (section.empty()) return root;
  Json& place = object_at(root, parent_path(section))["properties"][leaf_name(section)];
  if (place.is_null())
    place = {{"type", "object"}, {"additionalProperties", false}, {"properties", Json::object()}};
  return place;
}

void put(Json& root, const std::string& path, Json row) {
  object_at(root, parent_path(path))["properties"][leaf_name(path)] = std::move(row);
}

// "integer, at least 1, or auto". Bounds that only guard arithmetic appear in the JSON Schema only.
std::string type_words(const Key& key) {
  constexpr double kTechnical = 1e9;
  std::string words = key.shape;
  switch (key.kind) {
    case KeyKind::kBool: words = "true or false"; break;
    case KeyKind::kInt: words = "integer"; break;
    case KeyKind::kFloat: words = "number"; break;
    case KeyKind::kString: words = "string"; break;
    case KeyKind::kAny: break;
    case KeyKind::kEnum:
      for (const std::string& value : key.values) words += (words.empty() ? "" : ", ") + value;
      break;
  }
  if (key.min > -kTechnical) words += concat(key.above_min ? ", above " : ", at least ", key.min);
  if (key.max < kTechnical) words += concat(key.below_max ? ", below " : ", at most ", key.max);
  if (key.allows_auto || key.auto_means_default) words += ", or auto";
  if (key.allows_null) words += ", or null";
  return words;
}

std::string code_list(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += concat(out.empty() ? "" : ", ", "`", name, "`");
  return out;
}

std::string table_of(const Schema& schema, const std::string& section) {
  std::string rows;
  for (const Key& key : schema.keys()) {
    const size_t dot = key.path.find('.');
    const std::string first = dot == std::string::npos ? "" : key.path.substr(0, dot);
    if (key.status != KeyStatus::kImplemented || first != section) continue;
    const std::string preset = key.is_required            ? "required"
                               : key.default_json.empty() ? ""
                                                          : concat("`", key.default_json, "`");
    rows += concat("| `", key.path, "` | ", type_words(key), " | ", preset, " | ", key.help, " | ",
                   code_list(key.aliases), " |\n");
  }
  if (rows.empty()) return "";
  std::string head = section.empty() ? "" : concat("### ", section, "\n\n");
  const auto help = schema.section_help().find(section);
  if (help != schema.section_help().end()) head += help->second + "\n\n";
  return concat(head, "| key | value | default | meaning | aliases |\n|---|---|---|---|---|\n",
                rows, "\n");
}

std::string foreign_table(const Schema& schema, KeyStatus status, const std::string& title,
                          const std::string& column) {
  std::string rows;
  for (const Key& key : schema.keys()) {
    if (key.status != status) continue;
    std::vector<std::string> names = key.aliases;
    names.insert(names.begin(), key.path);
    rows += concat("| ", code_list(names), " | ", code_list(key.trivial), " | ", key.help, " |\n");
  }
  if (rows.empty()) return "";
  return concat("### ", title, "\n\n| key | accepted values | ", column, " |\n|---|---|---|\n",
                rows, "\n");
}

}  // namespace

Json json_schema(const Schema& schema) {
  Json root = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
               {"title", schema.title()},
               {"type", "object"},
               {"additionalProperties", false},
               {"properties", Json::object()}};
  Json required = Json::array();
  for (const Key& key : schema.keys()) {
    const Json row = row_of(key);
    put(root, key.path, row);
    for (const std::string& alias : key.aliases) {
      Json copy = row;
      copy.erase("default");
      copy["description"] = concat("Alias of ", key.path, ". ", description_of(key));
      put(root, alias, std::move(copy));
    }
    // A required key with an alias may be given under the alias, which `required` cannot express.
    if (key.is_required && key.aliases.empty()) required.push_back(key.path);
  }
  if (!required.empty()) root["required"] = required;
  return root;
}

std::string markdown_tables(const Schema& schema) {
  std::string out = concat("## ", schema.title(), "\n\n", table_of(schema, ""));
  std::vector<std::string> done;
  for (const Key& key : schema.keys()) {
    const std::string first = key.path.substr(0, key.path.find('.'));
    if (first == key.path || std::count(done.begin(), done.end(), first) != 0) continue;
    done.push_back(first);
    out += table_of(schema, first);
  }
  return out;
}

std::string markdown_reference(const Schema& schema) {
  std::string out = markdown_tables(schema);
  out += foreign_table(schema, KeyStatus::kNoEffect, "Accepted, without effect here", "why");
  out += foreign_table(schema, KeyStatus::kRefused, "Refused, unless the value is one of these",
                       "why");
  out += foreign_table(schema, KeyStatus::kUnavailable,
                       "Not available in this version, unless the value is one of these", "what");
  return out;
}

}  // namespace trireme
