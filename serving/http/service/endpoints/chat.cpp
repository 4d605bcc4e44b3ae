#include "serving/api/endpoints/chat.h"

#include <nlohmann/json.hpp>

#include "serving/api/field_table.h"
#include "serving/http/service/generation.h"
#include "serving/http/service/handler.h"

namespace trireme {
namespace {

// Tool calls are parsed from the model's text. A grammar enforces required calls and strict tools.
// With tool_choice "auto" and a constraint, the text is either what the constraint requires or tool
// calls.
void use_tools(const ServiceContext& service, ChatRequest& request, ResponseForm& form) {
  if (service.config.tools == ToolFormat::kNone)
    fail_unavailable(
        "tools",
        "the format of this model's tool calls is unknown: its chat template does not show it; the "
        "server's option --tool-call-parser sets it");
  const bool automatic = request.tool_choice == ToolChoice::kAuto;
  const bool constrained = request.constraint.kind != Constraint::Kind::kNone;
  const bool free = automatic && !constrained;
  form.tools.format = service.config.tools;
  form.tools.parallel = request.parallel_tool_calls;
  nlohmann::ordered_json called = nlohmann::ordered_json::array();
  for (const auto& tool : request.variables->at("tools")) {
    const auto& function = tool.at("function");
    const auto name = function.at("name").get<std::string>();
    form.tools.names.push_back(name);
    if (!request.tool_name.empty() && request.tool_name != name) continue;
    nlohmann::ordered_json one = {{"name", name}};
    if (free && !request.strict_tools.contains(name))
      one["parameters"] = {{"type", "object"}};  // any arguments
    else if (function.contains("parameters"))
      one["parameters"] = function["parameters"];
    called.push_back(std::move(one));
  }
  if (free) {
    // A marker that is a single token must be part of the text for the parser to find it.
    for (const std::string_view marker :
         {std::string_view(tool_marker(service.config.tools)), tool_end(service.config.tools)})
      form.text.shown.push_back(service.tokenizer.find(marker));
    if (request.strict_tools.empty()) return;
  }
  const bool several = request.parallel_tool_calls && request.tool_choice != ToolChoice::kNamed;
  const std::string source =
      json_text(nlohmann::ordered_json{{"format", text(service.config.tools)},
                                       {"parallel", several},
                                       {"free", free},
                                       {"tools", std::move(called)}});
  form.tools.either = automatic && constrained;
  form.tools.only_calls = !automatic;
  if (form.tools.either)
    request.constraint.tools = source;
  else
    request.constraint = {.kind = Constraint::Kind::kToolCalls, .text = source, .param = "tools"};
}

HandlerResult chat(ServiceContext& service, HttpRequest& http) {
  ChatRequest request = service.read(parse_chat, http.body);
  (void)service.find_model(request.model);
  ResponseForm form = form_of(request);
  if (request.tool_choice != ToolChoice::kNone) use_tools(service, request, form);
  auto ticket = service.admission.enter(http.tenant, request.n,
                                        static_cast<int64_t>(http.body.size()) / kBytesPerToken);
  std::vector<std::vector<int32_t>> prompts = {service.encode_chat(
      *request.variables, request.add_special, http.id, service.config.max_model_len - 1)};
  return generate(service, http, request, std::move(form), std::move(prompts), std::move(ticket));
}

}  // namespace

extern const Handler kChatHandler = {kChatEndpoint, chat};

}  // namespace trireme
