#include "serving/api/constraint_fields.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace trireme {
namespace {

// JSON text of a schema; also accepts a string, as vLLM does.
std::string schema_text(const std::string& param, const ApiJson& value) {
  if (!value.is_object() && !value.is_boolean() && !value.is_string())
    fail_type(param, "a JSON schema", value);
  std::string text = value.is_string() ? value.get<std::string>() : json_text(value);
  if (text.size() > kMaxConstraintBytes)
    fail_field(param, param, " has ", text.size(), " bytes, at most ", kMaxConstraintBytes,
               " are allowed");
  return text;
}

Constraint schema_constraint(const std::string& param, const ApiJson& schema) {
  return {.kind = Constraint::Kind::kJsonSchema, .text = schema_text(param, schema)};
}

// Constraint of a member of structured_outputs; kNone: not one of them.
Constraint constraint_of(std::string_view member, const ApiJson& value, const std::string& param) {
  using Kind = Constraint::Kind;
  if (member == "json") return schema_constraint(param, value);
  if (member == "regex" || member == "grammar")
    return {.kind = member == "regex" ? Kind::kRegex : Kind::kGrammar,
            .text = read_text(param, value, 1, kMaxConstraintBytes)};
  Constraint constraint;
  if (member == "json_object") {
    if (!value.is_boolean()) fail_type(param, "true or false", value);
    constraint.kind = Kind::kJsonObject;
  } else if (member == "choice") {
    constraint.kind = Kind::kChoice;
    if (!value.is_array() || value.empty() || value.size() > kMaxConstraintChoices)
      fail_field(param, param, ": expected an array of 1 to ", kMaxConstraintChoices, " strings");
    for (const ApiJson& one : value)
      constraint.choices.push_back(read_text(param, one, 1, kMaxConstraintBytes));
  }
  return constraint;
}

void set_constraint(GenerationRequest& request, Constraint constraint, const std::string& param) {
  if (request.constraint.kind != Constraint::Kind::kNone)
    fail_field(param, request.constraint.param, " and ", param, " exclude each other");
  request.constraint = std::move(constraint);
  request.constraint.param = param;
}

bool has(const ApiJson& object, const char* name) {
  return object.contains(name) && !object[name].is_null();
}

// {"name", "description", "schema", "strict"}. `strict` has no effect: every schema is enforced.
void check_description(const ApiJson& description, const std::string& param) {
  if (has(description, "name")) read_text(concat(param, ".name"), description["name"], 1, 64);
  if (has(description, "description") && !description["description"].is_string())
    fail_type(concat(param, ".description"), "a string", description["description"]);
  if (has(description, "strict") && !description["strict"].is_boolean())
    fail_type(concat(param, ".strict"), "true or false", description["strict"]);
}

// Accepts the wrapper json_schema of OpenAI's chats, which its Responses API and others omit.
Constraint read_json_schema(const ApiJson& value, const std::string& param) {
  check_members(param, value, {"type", "json_schema", "schema", "name", "description", "strict"});
  check_description(value, param);
  const std::string wrapper = concat(param, ".json_schema");
  if (has(value, "schema")) {
    if (has(value, "json_schema"))
      fail_field(wrapper, param, ".schema and ", wrapper, " exclude each other");
    return schema_constraint(concat(param, ".schema"), value["schema"]);
  }
  if (!has(value, "json_schema") || !value["json_schema"].is_object())
    fail_field(wrapper, param, " of type json_schema: expected an object json_schema");
  const ApiJson& description = value["json_schema"];
  check_members(wrapper, description, {"name", "description", "schema", "strict"});
  if (!has(description, "name"))
    fail_field(concat(wrapper, ".name"), param, ".json_schema.name is required");
  check_description(description, wrapper);
  if (!has(description, "schema"))
    fail_field(concat(wrapper, ".schema"), param, ".json_schema.schema is required");
  return schema_constraint(concat(wrapper, ".schema"), description["schema"]);
}

// An optional schema constrains the object, as in llama.cpp.
Constraint read_json_object(const ApiJson& value, const std::string& param) {
  check_members(param, value, {"type", "schema", "json_schema"});
  if (!has(value, "schema") && !has(value, "json_schema"))
    return {.kind = Constraint::Kind::kJsonObject};
  if (has(value, "json_schema")) return read_json_schema(value, param);
  const ApiJson& schema = value["schema"];
  if (schema == true || (schema.is_object() && schema.empty()))
    return {.kind = Constraint::Kind::kJsonObject};
  return schema_constraint(concat(param, ".schema"), schema);
}

Constraint read_member(const ApiJson& value, const std::string& param, const char* type,
                       const char* member) {
  check_members(param, value, {"type", member});
  const std::string at = concat(param, ".", member);
  if (!has(value, member))
    fail_field(at, param, " of type ", type, " requires the member ", member);
  return constraint_of(type, value[member], at);
}

}  // namespace

void read_response_format(GenerationRequest& request, const ApiJson& value, const Field& field) {
  const std::string& param = field.name;
  if (!value.contains("type")) fail_field(param, param, ".type is required");
  const std::string type = read_text(concat(param, ".type"), value["type"], 1, 64);
  if (type == "text") return check_members(param, value, {"type"});
  const auto set = [&](Constraint constraint) {
    set_constraint(request, std::move(constraint), param);
  };
  if (type == "json_object") return set(read_json_object(value, param));
  if (type == "json_schema") return set(read_json_schema(value, param));
  if (type == "grammar") return set(read_member(value, param, "grammar", "grammar"));
  if (type == "regex") return set(read_member(value, param, "regex", "pattern"));
  fail_field(concat(param, ".type"), param,
             ".type: expected one of \"text\", \"json_object\", \"json_schema\", \"grammar\", "
             "\"regex\"");
}

void read_structured_outputs(GenerationRequest& request, const ApiJson& value, const Field& field) {
  Constraint constraint;
  bool names_one = false;
  for (const auto& [name, what] : value.items()) {
    if (what.is_null()) continue;
    const std::string param = concat(field.name, ".", name.substr(0, 64));
    // Options of vLLM's backends. Ours never drops a constraint, and has no such options.
    const bool is_flag = name == "disable_any_whitespace" || name == "whitespace_pattern" ||
                         name == "disable_additional_properties";
    if (name == "disable_fallback" || (is_flag && what == false)) continue;
    if (is_flag || name == "structural_tag")
      fail_unavailable(param, param, " is not available on this server");
    names_one = true;
    // json_object: false asks for nothing, unlike the schema `false`, which matches nothing.
    if (name == "json_object" && what == false) continue;
    if (constraint.kind != Constraint::Kind::kNone)
      fail_field(param, field.name, ": expected only one constraint");
    constraint = constraint_of(name, what, param);
    if (constraint.kind == Constraint::Kind::kNone)
      check_members(field.name, {{name, what}},
                    {"json", "json_object", "regex", "choice", "grammar"});
  }
  if (!names_one)
    fail_field(field.name, field.name,
               ": expected one of json, json_object, regex, choice, grammar");
  if (constraint.kind != Constraint::Kind::kNone)
    set_constraint(request, std::move(constraint), field.name);
}

void read_constraint(GenerationRequest& request, const char* member, const ApiJson& value,
                     const Field& field) {
  if (value == "") return;  // default value sent by llama.cpp's clients
  set_constraint(request, constraint_of(member, value, field.name), field.name);
}

void refuse_unknown_constraints(const ApiJson& object, std::span<const Field> fields) {
  constexpr std::array kParts = {
      "guided",     "grammar",     "schema",     "regex",      "ebnf", "lark",
      "structur",   "constrain",   "ponse_fo",   "ponsefo",    "mime", "output_fo",
      "output_con", "tool_choice", "toolchoice", "logits_pro", "json"};
  constexpr std::array kNames = {"format", "text", "text_format", "choice", "choices", "tool"};
  for (const auto& member : object.items()) {
    const std::string& name = member.key();
    const ApiJson& value = member.value();
    const bool asks = !value.is_null() && value != false && value != "" &&
                      !(value.is_structured() && value.empty());
    const bool known = std::ranges::any_of(fields, [&](const Field& f) { return f.name == name; });
    if (!asks || known) continue;
    std::string lower = name;
    std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
    if (std::ranges::none_of(kParts, [&](auto part) { return lower.find(part) != lower.npos; }) &&
        std::ranges::find(kNames, lower) == kNames.end())
      continue;
    const std::string param = name.substr(0, 64);
    throw ApiError(
        400,
        concat("\"", param, "\" is not supported, but looks like a constraint on the completion: ",
               "use response_format or structured_outputs"),
        param, "unknown_field");
  }
}

}  // namespace trireme
