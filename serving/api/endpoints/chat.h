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
  // Checked variables for ChatTemplate::render(): messages, tools (unless tool_choice is kNone),
  // add_generation_prompt and those set by the request. Never null after parse_chat().
  std::shared_ptr<const nlohmann::ordered_json> variables;
  ToolChoice tool_choice = ToolChoice::kNone;
  std::string tool_name;               // for kNamed
  std::set<std::string> strict_tools;  // names of strict tools
  bool parallel_tool_calls = true;     // allows several calls in one message
  bool add_special = false;            // adds special tokens before the rendered template
};

// Parses a body. ApiError 400 for a body that is not a JSON object; else ApiError that names the
// field: 400 if it is invalid, 501 if the server does not support it.
ChatRequest parse_chat(std::string_view body, const RequestLimits& limits = {});

extern const Endpoint kChatEndpoint;

}  // namespace trireme
