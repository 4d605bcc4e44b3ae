#include "serving/api/endpoints/chat.h"

#include <algorithm>

#include "serving/api/chat_messages.h"
#include "serving/api/generation_fields.h"

namespace trireme {
namespace {

// Values of fields that other fields interpret.
struct ChatFields : ChatRequest {
  ApiJson given = ApiJson::object();  // variables of the template
  ApiJson kwargs = ApiJson::object();
  ApiJson choice;  // tool_choice
  ToolNames tools;
  bool logprobs = false;
  std::optional<bool> add_generation_prompt;
  bool continue_final_message = false;
};

void add_template_fields(FieldTable<ChatFields>& t) {
  using R = ChatFields;
  t.other(
      "chat_template", FieldKind::kString, "", "",
      "Name of one of the model's chat templates (default: with tools tool_use, if the model has "
      "it, else default). Templates are programs, so a request cannot bring its own.",
      [](R& r, const ApiJson& v, const Field& f) { r.given["chat_template"] = read_string(f, v); });
  t.other("chat_template_kwargs", FieldKind::kObject, "", R"({"additionalProperties":true})",
          "Variables of the chat template, such as enable_thinking.",
          [](R& r, const ApiJson& v, const Field&) { r.kwargs = v; })
      .size_range(0, 32);
  t.other("documents", FieldKind::kArray, "", R"({"items":{"type":"object"}})",
          "Documents for the chat template; 400 if the template does not render them.",
          [](R& r, const ApiJson& v, const Field&) { r.given["documents"] = read_documents(v); })
      .size_range(0, 128);
}

void add_conversation_fields(FieldTable<ChatFields>& t) {
  using R = ChatFields;
  t.other("messages", FieldKind::kArray, "", R"({"minItems":1,"items":{"type":"object"}})",
          "Messages of the conversation, each with role (system, developer, user, assistant, tool) "
          "and content.",
          [](R& r, const ApiJson& v, const Field&) {
            r.given["messages"] = read_messages(v, r.unknown);
          })
      .size_range(1, 1 << 14)
      .required();
  t.other("tools", FieldKind::kArray, "", R"({"minItems":1,"items":{"type":"object"}})",
          "Functions that the model may call.",
          [](R& r, const ApiJson& v, const Field&) { r.given["tools"] = read_tools(v, r.tools); });
  t.other("tool_choice", FieldKind::kOther, "",
          R"({"oneOf":[{"enum":["none","auto","required"]},{"type":"object"}]})",
          "Whether the model calls tools: none, auto, required, or the function to call.",
          [](R& r, const ApiJson& v, const Field&) { r.choice = v; });
  t.boolean("parallel_tool_calls", &R::parallel_tool_calls, "true",
            "Allow several function calls in one message.");
  t.other(
      "add_generation_prompt", FieldKind::kBoolean, "true", "",
      "End the prompt with the start of an assistant message (default: true, but false with "
      "continue_final_message).",
      [](R& r, const ApiJson& v, const Field& f) { r.add_generation_prompt = read_boolean(f, v); });
  t.boolean(
      "continue_final_message", &R::continue_final_message, "false",
      "End the prompt with the text of the last message, so that the completion continues it.");
  add_template_fields(t);
  t.boolean("add_special_tokens", &R::add_special, "false",
            "Add the special tokens that the model expects before a text, such as <s>, before the "
            "rendered template.");
  t.other("reasoning_effort", FieldKind::kString, "", "",
          "Variable of the chat template; \"none\" also sets enable_thinking and thinking to "
          "false, other values set them to true.",
          [](R& r, const ApiJson& v, const Field& f) {
            r.given["reasoning_effort"] = read_string(f, v);
          })
      .one_of({"none", "minimal", "low", "medium", "high", "xhigh", "max"});
}

FieldTable<ChatFields> make_chat_table() {
  using R = ChatFields;
  FieldTable<R> t;
  t.string("model", &R::model, "Model id, as listed by /v1/models.").size_range(1, 512).required();
  add_conversation_fields(t);
  for (const char* name : {"max_completion_tokens", "max_tokens"})
    t.other(name, FieldKind::kInteger, "", "",
            "Maximum tokens of the completion; absent: up to the model's maximum length.",
            [](R& r, const ApiJson& v, const Field& f) {
              const int64_t tokens = read_integer(f, v);
              r.max_tokens = std::min(r.max_tokens.value_or(tokens), tokens);
            })
        .range(1, 1e9);
  t.boolean("logprobs", &R::logprobs, "false",
            "Return log-probabilities of the completion's tokens.");
  t.integer("top_logprobs", &R::top_logprobs, "0",
            "Number of most probable tokens to return at each position. Only with `logprobs`.")
      .range(0, static_cast<double>(kMaxTopLogprobs));
  add_ending_fields(t);
  add_sampling_fields(t);
  add_serving_fields(t);
  t.add_peer_fields('h');
  return t;
}

const FieldTable<ChatFields>& chat_table() {
  static const FieldTable<ChatFields> made = make_chat_table();
  return made;
}

[[noreturn]] void fail_choice() {
  fail_field("tool_choice",
             "tool_choice: expected \"none\", \"auto\", \"required\" or "
             "{\"type\": \"function\", \"function\": {\"name\": ...}}");
}

void read_tool_choice(ChatFields& r) {
  const bool tools = r.given.contains("tools");
  if (r.choice.is_null()) {
    r.tool_choice = tools ? ToolChoice::kAuto : ToolChoice::kNone;
    return;
  }
  if (r.choice == "none") return;
  if (!tools) fail_field("tool_choice", "tool_choice is only allowed with tools");
  if (r.choice == "auto") {
    r.tool_choice = ToolChoice::kAuto;
  } else if (r.choice == "required") {
    r.tool_choice = ToolChoice::kRequired;
  } else {
    if (!r.choice.is_object() || !r.choice.contains("type")) fail_choice();
    if (r.choice["type"] == "allowed_tools")
      fail_unavailable("tool_choice",
                       "tool_choice of type allowed_tools is not supported; supported: function");
    check_members("tool_choice", r.choice, {"type", "function"});
    if (r.choice["type"] != "function" || !r.choice.contains("function") ||
        !r.choice["function"].is_object() || !r.choice["function"].contains("name") ||
        !r.choice["function"]["name"].is_string())
      fail_choice();
    check_members("tool_choice.function", r.choice["function"], {"name"});
    r.tool_name = r.choice["function"]["name"].get<std::string>();
    if (!r.tools.all.contains(r.tool_name))
      fail_field("tool_choice", "tool_choice names \"", r.tool_name.substr(0, 64),
                 "\", which is not in tools");
    r.tool_choice = ToolChoice::kNamed;
  }
}

std::span<const Field> chat_fields() { return chat_table().fields(); }

}  // namespace

const Endpoint kChatEndpoint = {.method = "POST",
                                .path = "/v1/chat/completions",
                                .summary = "Create a chat completion",
                                .fields = chat_fields,
                                .streams = true,
                                .is_admitted = true};

ChatRequest parse_chat(std::string_view body, const RequestLimits& limits) {
  const ApiJson object = parse_body(body, limits.json_depth);
  ChatFields r;
  chat_table().read(object, r, r.unknown);
  refuse_unknown_constraints(object, chat_table().fields());
  check_generation(r, object, limits);
  if (r.n > limits.sequences) fail_field("n", "n must be <= ", limits.sequences);
  if (r.top_logprobs > 0 && !r.logprobs)
    fail_field("top_logprobs", "top_logprobs is only allowed with logprobs");
  r.top_logprobs = r.logprobs ? std::max(r.top_logprobs, 0) : -1;
  read_tool_choice(r);
  check_beam_search(r, r.n);
  if (r.beam_search && r.tool_choice != ToolChoice::kNone && r.tool_choice != ToolChoice::kAuto)
    fail_field("tool_choice", "tool_choice must be \"none\" or \"auto\" with use_beam_search");
  if (r.tool_choice == ToolChoice::kNone) r.given.erase("tools");
  r.strict_tools = std::move(r.tools.strict);
  add_prompt_ending(r.add_generation_prompt, r.continue_final_message, r.given);
  add_template_variables(r.kwargs, r.given);
  r.variables = std::make_shared<const ApiJson>(std::move(r.given));
  return std::move(static_cast<ChatRequest&>(r));
}

}  // namespace trireme
