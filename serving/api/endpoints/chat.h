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
  // Checked variables for ChatTemplate::render(): messages, tools, add_generation_prompt and those
  // set by the request. Never null.
  std::shared_ptr<const nlohmann::ordered_json> variables;
  ToolChoice tool_choice = ToolChoice::kNone;
  std::string tool_name;               // for kNamed
  std::set<std::string> strict_tools;  // names of strict tools
  bool parallel_tool_calls = true;
  bool add_special = false;
};

// Parses a body. ApiError that names the field: 400, or 501 if the server does not support it.
ChatRequest parse_chat(std::string_view body, const RequestLimits& limits = {});

extern const Endpoint kChatEndpoint;

}  // namespace trireme
