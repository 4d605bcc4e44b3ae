// How models write calls of tools, each family in its own way:
//
//   hermes   <tool_call>\n{"name": "f", "arguments": {...}}\n</tool_call>, one after the other    (Hermes, Qwen)
//   llama3   {"name": "f", "parameters": {...}}, with ; between; <|python_tag|> may precede them  (Llama 3)
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

// By what the chat template for conversations with tools writes; kNone: no form that is known.
ToolFormat tool_format_of_templates(const ChatTemplateSources& sources);
// InputError for a name that is not known.
ToolFormat tool_format(std::string_view name);
const char* text(ToolFormat format);
// What begins calls in a text; "" for kNone.
const char* tool_marker(ToolFormat format);
// What ends one call; "" where nothing does.
std::string_view tool_end(ToolFormat format);

// Calls of tools and nothing else, as a text of JSON says: {"format": "hermes", "parallel": true,
// "free": false, "tools": [{"name", "parameters"}]}. The marker that is a token of its own for
// llama3 and mistral is left out. free: any text in which no call begins, and behind it calls or
// nothing; there the marker is spelled. For llama3 no text begins with { that is no call.
Grammar::Node tool_call_grammar(Grammar& grammar, std::string_view tools);

}  // namespace trireme
