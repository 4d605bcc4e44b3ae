#include "tests/serving/structured/sweep/schema_source.h"

#include <algorithm>
#include <array>

namespace trireme::test {
namespace {

constexpr std::array kNames = {"name", "n",       "na",       "age",  "tags",  "é",
                               "a b",  "quote\"", "position", "next", "items", "x"};
constexpr std::array kPatterns = {
    "^[a-z]{2,5}$", "a+b",       "^\\d{3}-\\d{4}$", "(foo|ba[rz])+",
    "^\"?x\"?$",    "\\\\|\\/$", "^[^a-z]{1,3}$",   "^(a|ab)(c|bcd)$"};
constexpr std::array kFormats = {"date", "date-time", "uuid", "email", "uri"};
// Annotations, and keywords that allow everything with these values.
constexpr std::array kNothing = {R"({"contentMediaType":"text/plain","$anchor":"here"})",
                                 R"({"unevaluatedProperties":true,"propertyNames":{}})",
                                 R"({"dependentRequired":{},"uniqueItems":false,"not":false})",
                                 R"({"format":"binary","if":{"const":1},"then":true})"};
constexpr std::array kTypes = {"string", "number", "integer", "boolean", "null"};

}  // namespace

Json SchemaSource::next() {
  recursive_ = chance(25);
  Json root = schema(3);
  if (!recursive_) return root;
  // Optionally recursive.
  Json node = object_schema(1);
  node["properties"]["next"] = Json{{"anyOf", {{{"$ref", "#/$defs/node"}}, {{"type", "null"}}}}};
  Json outer = {{"$defs", {{"node", std::move(node)}}}};
  if (chance(50)) {
    outer["$ref"] = "#/$defs/node";
    return outer;
  }
  outer["type"] = "object";
  outer["properties"] = {{"root", {{"$ref", "#/$defs/node"}}}, {"other", std::move(root)}};
  outer["required"] = {"root"};
  return outer;
}

Json SchemaSource::schema(int depth) {
  Json made = constraints(depth);
  if (chance(10))
    made.update(Json::parse(kNothing[static_cast<size_t>(number(0, kNothing.size() - 1))]));
  return made;
}

Json SchemaSource::constraints(int depth) {
  if (recursive_ && chance(15)) return {{"$ref", "#/$defs/node"}};
  switch (number(0, depth > 0 ? 13 : 6)) {
    case 0: {
      Json s = {{"enum", {value(1), value(1), value(2), 3, "abc"}}};
      if (chance(30)) s.update({{"minimum", -5}, {"maxLength", 12}, {"maxItems", 2}});
      return s;
    }
    case 1: return Json{{"const", value(1)}, {"title", "a constant"}};
    case 2:
    case 3: return string_schema();
    case 4: return number_schema();
    case 5: {
      Json types = Json::array({kTypes[static_cast<size_t>(number(0, 4))]});
      if (types[0] != "null") types.push_back("null");
      return Json{{"type", types}};
    }
    case 6: return Json{{"type", chance(50) ? "boolean" : "null"}};
    case 7:
      if (chance(50)) return exclusive_schema(depth);
      return Json{{"anyOf", {schema(depth - 1), Json{{"type", "null"}}, string_schema()}}};
    case 8: {
      Json all = Json::array({object_schema(depth - 1), Json{{"required", {"extra"}}}});
      all[0].erase("additionalProperties");
      return Json{{"allOf", std::move(all)}, {"description", "both"}};
    }
    case 9: return array_schema(depth);
    case 10: return counted_array();
    case 11: return dictionary();
    default: return object_schema(depth);
  }
}

// Similar schemas of which a value satisfies at most one.
Json SchemaSource::exclusive_schema(int depth) {
  Json ways = Json::array({number_schema(), Json{{"type", {"null", "boolean"}}}});
  for (const char* kind : {"a", "b"}) {
    Json one = object_schema(depth - 1);
    one["properties"]["kind"] = {{"const", kind}};
    if (!one.contains("required")) one["required"] = Json::array();
    one["required"].push_back("kind");
    ways.push_back(std::move(one));
  }
  const int64_t longest = number(0, 5);
  ways.push_back({{"type", "string"}, {"maxLength", longest}});
  ways.push_back({{"minLength", longest + 1}, {"maxLength", longest + 9}, {"type", "string"}});
  return {{"oneOf", std::move(ways)}};
}

Json SchemaSource::string_schema() {
  Json s = {{"type", "string"}};
  switch (number(0, 7)) {
    case 5:  // longer than any text
      s["maxLength"] = 60 + number(0, 300);
      break;
    case 6:
      s["format"] = kFormats[static_cast<size_t>(number(0, kFormats.size() - 1))];
      s["minLength"] = number(0, 5);
      s["maxLength"] = 45 + number(0, 50);
      break;
    case 7:
      s["pattern"] = kPatterns[static_cast<size_t>(number(0, 3))];
      s["minLength"] = number(0, 4);
      if (chance(50)) s["maxLength"] = 8 + number(0, 90);
      if (chance(30)) return {{"allOf", {s, {{"pattern", "[a-z0-9]"}}}}};
      break;
    case 0: s["pattern"] = kPatterns[static_cast<size_t>(number(0, kPatterns.size() - 1))]; break;
    case 1: s["format"] = kFormats[static_cast<size_t>(number(0, kFormats.size() - 1))]; break;
    case 2:
      s["minLength"] = number(0, 4);
      if (chance(70)) s["maxLength"] = s["minLength"].get<int64_t>() + number(0, 20);
      break;
    default: break;
  }
  return s;
}

Json SchemaSource::number_schema() {
  const bool whole = chance(60);
  Json s = {{"type", whole ? "integer" : "number"}};
  const int64_t size =
      std::array<int64_t, 4>{9, 120, 5000, 100'000'000}[static_cast<size_t>(number(0, 3))];
  const int64_t least = number(-size, size);
  const auto bound = [&](int64_t at) -> Json {
    if (whole && chance(80)) return at;
    return static_cast<double>(at) + 0.125 * static_cast<double>(number(0, 7));
  };
  if (chance(70)) s[chance(70) ? "minimum" : "exclusiveMinimum"] = bound(least);
  if (chance(70))
    s[chance(70) ? "maximum" : "exclusiveMaximum"] = bound(least + 2 + number(0, size));
  if (chance(30)) {  // some number satisfies it if there is no maximum
    s.erase("maximum");
    s.erase("exclusiveMaximum");
    const auto choice = static_cast<size_t>(number(0, 7));
    if (whole)
      s["multipleOf"] = std::array{2, 3, 5, 7, 10, 12, 60, 1000}[choice];
    else
      s["multipleOf"] = std::array{0.5, 0.25, 2.5, 1.0, 5.0, 0.125, 3.0, 10.0}[choice];
  }
  return s;
}

// Arrays with constraints across elements.
Json SchemaSource::counted_array() {
  Json s = {{"type", "array"}, {"items", {{"enum", {"a", "b", 1, nullptr, Json::array({1, 2})}}}}};
  if (chance(20)) s["items"] = {{"type", {"integer", "null"}}, {"minimum", -2}, {"maximum", 2}};
  const int64_t least = number(0, 2);
  if (chance(50)) s["minItems"] = least;
  if (chance(50)) s["maxItems"] = least + number(1, 2);
  if (chance(60)) s["uniqueItems"] = true;
  if (chance(50)) {
    s["contains"] = chance(50) ? Json{{"type", "integer"}} : Json{{"enum", {1, nullptr}}};
    if (chance(30)) s["minContains"] = number(0, 1);
    if (chance(50)) s["maxContains"] = number(1, 2);
    // Unlimited values, which need not match.
    if (!s.contains("maxContains") && !s.contains("uniqueItems") && chance(50))
      s["items"] = {{"type", {"integer", "string", "null"}}};
  }
  return s;
}

// Names that the schema does not define.
Json SchemaSource::dictionary() {
  Json s = {{"type", "object"}, {"additionalProperties", schema(0)}};
  switch (number(0, 4)) {
    case 4:
      s["patternProperties"] = {{"^[a-m]", schema(0)}, {"[0-9]$", {{"type", "integer"}}}};
      if (chance(50)) s["additionalProperties"] = false;
      break;
    case 0: s["propertyNames"] = {{"pattern", "^[a-z_]+$"}, {"maxLength", number(3, 12)}}; break;
    case 1: s["propertyNames"] = {{"minLength", number(0, 2)}}; break;
    case 2: s["propertyNames"] = {{"enum", {"x", "y z", "é", "name"}}}; break;
    default: break;
  }
  if (chance(60)) s["minProperties"] = number(0, 3);
  if (chance(50)) s["maxProperties"] = s.value("minProperties", int64_t{0}) + number(1, 3);
  return s;
}

void SchemaSource::add_counts(Json& object) {
  const Json properties = object["properties"];
  if (properties.dump().find("$ref") != std::string::npos) return;  // it may allow no text
  const auto named = static_cast<int64_t>(properties.size());
  const auto required = static_cast<int64_t>(object.value("required", Json::array()).size());
  if (chance(50) && named > 1) {
    Json needs = Json::object();
    for (const auto& [name, schema] : properties.items())
      if (chance(30)) needs[name].push_back(kNames[static_cast<size_t>(number(0, 3))]);
    // Names that do not exist cannot be required where no other names are allowed.
    if (object.value("additionalProperties", Json(true)) != false)
      object["dependentRequired"] = needs;
    return;
  }
  // A further name may be required, too.
  const int64_t most =
      std::max(named, required) + 1 - number(0, std::max<int64_t>(named - required, 0));
  if (chance(60)) object["maxProperties"] = most;
  object["minProperties"] = number(0, std::min(named, most));
}

Json SchemaSource::array_schema(int depth) {
  Json s = {{"type", "array"}};
  if (chance(80)) s["items"] = schema(depth - 1);
  if (chance(30)) s["prefixItems"] = {schema(depth - 1), schema(0)};
  if (chance(50)) s["minItems"] = number(0, 3);
  if (chance(60))
    s["maxItems"] = s.value("minItems", int64_t{0}) + (chance(80) ? number(0, 4) : number(64, 999));
  return s;
}

Json SchemaSource::object_schema(int depth) {
  Json s = {{"type", "object"}, {"properties", Json::object()}};
  Json required = Json::array();
  const int64_t count = number(0, 5);
  for (int64_t i = 0; i < count; ++i) {
    const char* name = kNames[static_cast<size_t>(number(0, kNames.size() - 1))];
    if (s["properties"].contains(name)) continue;
    s["properties"][name] = schema(depth > 0 ? depth - 1 : 0);
    // A required self-reference allows no text.
    if (chance(50) && s["properties"][name].dump().find("$ref") == std::string::npos)
      required.push_back(name);
  }
  if (!required.empty()) s["required"] = required;
  if (chance(30))
    s["additionalProperties"] = false;
  else if (chance(30))
    s["additionalProperties"] = schema(0);
  if (chance(30)) add_counts(s);
  return s;
}

Json SchemaSource::value(int depth) {
  switch (number(0, depth > 0 ? 6 : 4)) {
    case 0: return number(-50, 50);
    case 1: return "word " + std::to_string(number(0, 9));
    case 2: return chance(50);
    case 3: return nullptr;
    case 4: return "\"quoted\"\n\\";
    case 5: return Json::array({value(depth - 1), value(depth - 1)});
    default: return Json{{"key", value(depth - 1)}};
  }
}

}  // namespace trireme::test
