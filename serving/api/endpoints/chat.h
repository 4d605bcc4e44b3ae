// POST /v1/chat/completions.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <string_view>

#include "serving/api/endpoint.h"
#include "serving/api/requests.h"

namespace trireme {

enum class ToolChoice { kNone, kAuto, kRequired, kNamed };

struct ChatRequest : GenerationRequest {
  // For ChatTemplate::render(): messages, tools, add_generation_prompt and what the request says of
  // the template's variables, checked; never null.
  std::shared_ptr<const nlohmann::ordered_json> variables;
  ToolChoice tool_choice = ToolChoice::kNone;
  std::string tool_name;               // of kNamed
  std::set<std::string> strict_tools;  // their names
  bool parallel_tool_calls = true;
  bool add_special = false;
};

// ApiError (400, or 501 for what this server does not do) names the field.
ChatRequest parse_chat(std::string_view body, const RequestLimits& limits = {});

extern const Endpoint kChatEndpoint;

}  // namespace trireme
