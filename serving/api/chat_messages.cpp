#include "serving/api/chat_messages.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/config/nearest_word.h"
#include "engine/io/strict_json.h"

namespace trireme {
namespace {

constexpr size_t kMaxTools = 128, kMaxToolBytes = 64 << 10, kMaxName = 64;
constexpr size_t kMaxToolCalls = 128, kMaxOtherMembers = 16, kMaxUnknownMembers = 32;
constexpr int kArgumentsDepth = 32;

[[noreturn]] void fail_message_type(const std::string& param, const char* wanted,
                                    const ApiJson& value) {
  throw ApiError(400, concat(param, ": expected ", wanted, ", got ", type_words(value)), param,
                 "invalid_type");
}

// Returns nullptr if the member is absent or null.
const ApiJson* member(const ApiJson& object, const char* name) {
  const auto at = object.find(name);
  return at == object.end() || at->is_null() ? nullptr : &*at;
}

const std::string& text_member(const ApiJson& object, const char* name, const std::string& where) {
  const std::string param = concat(where, ".", name);
  const ApiJson* value = member(object, name);
  if (value == nullptr) throw ApiError(400, concat(param, " is required"), param, "missing_field");
  if (!value->is_string()) fail_message_type(param, "a string", *value);
  return value->get_ref<const std::string&>();
}

std::string joined_parts(const ApiJson& parts, const std::string& param) {
  std::string out;
  bool first = true;
  for (const ApiJson& part : parts) {
    if (!part.is_object()) fail_message_type(param, "a string or an array of parts", part);
    const std::string& type = text_member(part, "type", param);
    if (type != "text" && type != "refusal")
      fail_unavailable(param, param, ": parts of type \"", type.substr(0, 40),
                       "\" are not supported; supported: text");
    if (!first) out += '\n';
    first = false;
    out += text_member(part, type.c_str(), param);
  }
  return out;
}

// Text of the content, or null if it may be absent.
ApiJson content_of(const ApiJson& message, const std::string& where, bool may_be_absent) {
  const std::string param = concat(where, ".content");
  const ApiJson* content = member(message, "content");
  if (content == nullptr) {
    if (may_be_absent) return nullptr;
    throw ApiError(400, concat(param, " is required"), param, "missing_field");
  }
  if (content->is_string()) return *content;
  if (content->is_array()) return joined_parts(*content, param);
  fail_message_type(param, "a string or an array of parts", *content);
}

bool is_tool_name(const std::string& name) {
  return !name.empty() && name.size() <= kMaxName &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == '-';
         });
}

// Arguments are written by a model: anything but a JSON object (truncated, badly quoted) stays
// text, or no later turn of the conversation could be served.
ApiJson read_arguments(const std::string& arguments) {
  if (arguments.find_first_not_of(" \t\r\n") == std::string::npos) return ApiJson::object();
  try {
    ApiJson parsed = parse_strict_json<ApiJson>(arguments, "arguments",
                                                {.depth = kArgumentsDepth, .long_integers = true});
    if (parsed.is_object()) return parsed;
  } catch (const InputError&) {
  }
  return arguments;
}

ApiJson read_tool_call(const ApiJson& call, const std::string& where) {
  if (!call.is_object()) fail_message_type(where, "an object", call);
  const ApiJson* function = member(call, "function");
  const std::string param = concat(where, ".function");
  if (function == nullptr || !function->is_object())
    fail_field(param, param, ": expected an object");
  const std::string& arguments = text_member(*function, "arguments", param);
  return {{"id", text_member(call, "id", where)},
          {"type", "function"},
          {"function",
           {{"name", text_member(*function, "name", param)},
            {"arguments", read_arguments(arguments)}}}};
}

ApiJson read_tool_calls(const ApiJson& calls, const std::string& where) {
  if (!calls.is_array()) fail_message_type(where, "an array", calls);
  if (calls.size() > kMaxToolCalls)
    fail_field(where, where, " has ", calls.size(), " entries, at most ", kMaxToolCalls,
               " are allowed");
  ApiJson out = ApiJson::array();
  for (const ApiJson& call : calls)
    out.push_back(read_tool_call(call, concat(where, "[", out.size(), "]")));
  return out;
}

bool says_nothing(const ApiJson& value) {
  return value.is_null() || value == false ||
         ((value.is_structured() || value.is_string()) && value.empty());
}

// Copies the optional members of a message.
void read_other_members(const ApiJson& message, const std::string& where, ApiJson& out,
                        std::vector<std::string>& unknown) {
  for (const char* name : {"name", "reasoning_content"})
    if (member(message, name) != nullptr) out[name] = text_member(message, name, where);
  size_t others = 0;
  for (const auto& [name, value] : message.items()) {
    if (out.contains(name) || says_nothing(value)) continue;
    if (++others > kMaxOtherMembers)
      fail_field(where, where, " has more than ", kMaxOtherMembers, " unknown members");
    if (value.is_string() && name != "tool_calls") {
      out[name] = value;
      continue;
    }
    std::string field = concat("messages[].", name.substr(0, 64));
    if (unknown.size() < kMaxUnknownMembers &&
        std::find(unknown.begin(), unknown.end(), field) == unknown.end())
      unknown.push_back(std::move(field));
  }
}

ApiJson read_message(const ApiJson& message, const std::string& where,
                     std::vector<std::string>& unknown) {
  if (!message.is_object()) fail_message_type(where, "an object", message);
  constexpr std::array kRoles = {"developer", "system", "user", "assistant", "tool", "function"};
  std::string role = text_member(message, "role", where);
  if (std::find(kRoles.begin(), kRoles.end(), role) == kRoles.end())
    fail_field(
        concat(where, ".role"), where, ".role \"", role.substr(0, 40),
        "\" is not supported; supported: system, developer, user, assistant, tool, function");
  if (role == "developer") role = "system";
  ApiJson out = {{"role", role == "function" ? "tool" : role}};
  const ApiJson* calls = role == "assistant" ? member(message, "tool_calls") : nullptr;
  const bool calls_tools = calls != nullptr && !calls->empty();
  out["content"] = content_of(message, where, calls_tools);
  if (calls_tools) out["tool_calls"] = read_tool_calls(*calls, concat(where, ".tool_calls"));
  if (role == "tool") out["tool_call_id"] = text_member(message, "tool_call_id", where);
  read_other_members(message, where, out, unknown);
  return out;
}

// Tool arguments form an object, so their schema must allow one.
void check_parameters(const ApiJson& parameters, const std::string& param) {
  if (!parameters.is_object()) fail_message_type(param, "an object", parameters);
  const ApiJson* type = member(parameters, "type");
  const bool fits =
      type == nullptr || *type == "object" ||
      (type->is_array() && std::find(type->begin(), type->end(), "object") != type->end());
  if (!fits) fail_field(param, param, ".type: expected \"object\"");
}

bool is_strict(const ApiJson& function, const std::string& where) {
  const ApiJson* strict = member(function, "strict");
  if (strict != nullptr && !strict->is_boolean())
    fail_message_type(concat(where, ".function.strict"), "true or false", *strict);
  return strict != nullptr && strict->get<bool>();
}

// Throws 400 for a member that requests a constraint under another name, or misspells one. Others
// are ignored, because clients add marks of their own ("cache_control").
void check_tool_members(const std::string& param, const ApiJson& object,
                        std::initializer_list<std::string_view> known) {
  ApiJson asking = ApiJson::object();
  for (const auto& member : object.items()) {
    const std::string& name = member.key();
    const auto misspells = [&](std::string_view one) {
      return edit_distance(name, std::string(one)) <= static_cast<int>(one.size()) / 3;
    };
    if (name.find("schema") != std::string::npos || name.starts_with("strict") ||
        name.starts_with("param") || name.starts_with("arg") ||
        std::ranges::any_of(known, misspells))
      asking[name] = member.value();
  }
  check_members(param, asking, known);
}

}  // namespace

ApiJson read_messages(const ApiJson& messages, std::vector<std::string>& unknown) {
  ApiJson out = ApiJson::array();
  for (const ApiJson& message : messages)
    out.push_back(read_message(message, concat("messages[", out.size(), "]"), unknown));
  return out;
}

ApiJson read_documents(const ApiJson& documents) {
  size_t number = 0;
  for (const ApiJson& document : documents) {
    const std::string where = concat("documents[", number++, "]");
    if (!document.is_object()) fail_message_type(where, "an object", document);
    if (json_text(document).size() > kMaxToolBytes)
      fail_field(where, where, " has more than ", kMaxToolBytes, " bytes");
  }
  return documents;
}

void add_prompt_ending(std::optional<bool> add_generation_prompt, bool continue_final_message,
                       ApiJson& variables) {
  if (continue_final_message && add_generation_prompt == true)
    fail_field("continue_final_message",
               "continue_final_message and add_generation_prompt must not both be true: one "
               "continues the last message, the other begins a new one");
  variables["add_generation_prompt"] = add_generation_prompt.value_or(!continue_final_message);
  if (continue_final_message) variables["continue_final_message"] = true;
}

ApiJson read_tools(const ApiJson& tools, ToolNames& names) {
  if (tools.empty()) fail_field("tools", "tools must not be empty; leave it out instead");
  if (tools.size() > kMaxTools)
    fail_field("tools", "tools has ", tools.size(), " entries, at most ", kMaxTools,
               " are allowed");
  ApiJson out = ApiJson::array();
  for (const ApiJson& tool : tools) {
    const std::string where = concat("tools[", out.size(), "]");
    if (!tool.is_object()) fail_message_type(where, "an object", tool);
    if (text_member(tool, "type", where) != "function")
      fail_unavailable(concat(where, ".type"), where, ".type: expected \"function\"");
    const ApiJson* function = member(tool, "function");
    if (function == nullptr || !function->is_object())
      fail_field(concat(where, ".function"), where, ".function: expected an object");
    check_tool_members(where, tool, {"type", "function"});
    check_tool_members(concat(where, ".function"), *function,
                       {"name", "description", "parameters", "strict"});
    const std::string name = text_member(*function, "name", concat(where, ".function"));
    if (!is_tool_name(name))
      fail_field(concat(where, ".function.name"), where, ".function.name: expected 1 to ", kMaxName,
                 " letters, digits, _ or -");
    if (json_text(*function).size() > kMaxToolBytes)
      fail_field(where, where, " has more than ", kMaxToolBytes, " bytes");
    ApiJson kept = {{"name", name}};
    if (const ApiJson* description = member(*function, "description"); description != nullptr)
      kept["description"] = text_member(*function, "description", concat(where, ".function"));
    if (const ApiJson* parameters = member(*function, "parameters"); parameters != nullptr) {
      check_parameters(*parameters, concat(where, ".function.parameters"));
      kept["parameters"] = *parameters;
    }
    if (!names.all.insert(name).second)
      fail_field(concat(where, ".function.name"), where, ".function.name: \"", name,
                 "\" is the name of another tool");
    if (is_strict(*function, where)) names.strict.insert(name);
    out.push_back({{"type", "function"}, {"function", kept}});
  }
  return out;
}

void add_template_variables(const ApiJson& kwargs, ApiJson& variables) {
  constexpr std::array kReserved = {
      "messages",  "tools",    "documents",     "add_generation_prompt", "bos_token",
      "eos_token", "tokenize", "chat_template", "continue_final_message"};
  const bool has_effort = variables.contains("reasoning_effort");
  const bool thinks = has_effort && variables["reasoning_effort"] != "none";
  for (const auto& [name, value] : kwargs.items()) {
    const std::string param = concat("chat_template_kwargs.", name.substr(0, 64));
    if (std::find(kReserved.begin(), kReserved.end(), name) != kReserved.end() ||
        variables.contains(name))
      fail_field(param, param, " cannot be set by a request");
    if (!value.is_boolean() && !value.is_number() && !value.is_string() && !is_long_integer(value))
      fail_message_type(param, "true, false, a number or a string", value);
    const size_t bytes =
        value.is_string() ? value.get_ref<const std::string&>().size() : json_text(value).size();
    if (bytes > 256) fail_field(param, param, " has more than 256 bytes");
    variables[name] = value;
  }
  if (!has_effort) return;
  for (const char* name : {"enable_thinking", "thinking"})
    if (!variables.contains(name)) variables[name] = thinks;
}

}  // namespace trireme
