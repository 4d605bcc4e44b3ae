// Formats of tool calls, by model family:
//
//   hermes   <tool_call>\n{"name": "f", "arguments": {...}}\n</tool_call>, repeated  (Hermes, Qwen)
//   llama3   {"name": "f", "parameters": {...}}, separated by ;                      (Llama 3)
//            <|python_tag|> may precede them
//   mistral  [TOOL_CALLS] [{"name": "f", "arguments": {...}}, ...]
//
// The names are vLLM's ("llama3_json" for the second).
#pragma once

#include <string>
#include <string_view>

#include "engine/text/chat_template_sources.h"
#include "serving/structured/grammar.h"

namespace trireme {

enum class ToolFormat { kNone, kHermes, kLlama3, kMistral };

// Format of the chat template that is used with tools; kNone: unknown.
ToolFormat tool_format_of_templates(const ChatTemplateSources& sources);
// Format of that name. InputError for an unknown name.
ToolFormat tool_format(std::string_view name);
// Name of the format; "none" for kNone.
const char* text(ToolFormat format);
// Marker before the calls of a text; "" for kNone.
const char* tool_marker(ToolFormat format);
// Marker after each call; "" if there is none.
std::string_view tool_end(ToolFormat format);

// Grammar of tool calls. tools: JSON, {"format": "hermes", "parallel": true, "free": false,
// "tools": [{"name", "parameters"}]}. "parallel": one or more calls; otherwise exactly one. Without
// "parameters" the arguments are {}. With "free": false, calls only; for llama3 and mistral without
// their marker, which is a single token. With "free": true, any text without a marker, optionally
// followed by the text of a marker and calls; for llama3 such a text does not begin with {, unless
// it is a call.
Grammar::Node tool_call_grammar(Grammar& grammar, std::string_view tools);

}  // namespace trireme
