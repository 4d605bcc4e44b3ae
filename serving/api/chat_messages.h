// Messages and tools of a chat, as chat templates take them. For .cpp files only (it includes the
// JSON library).
#pragma once

#include <set>
#include <string>

#include "serving/api/field_table.h"

namespace trireme {

// Only what templates know of: role, content (a string; of several parts their texts, a line each),
// name, reasoning_content, tool_calls (arguments as objects) and tool_call_id. "developer" is
// "system", "function" is "tool". 400 for what is no conversation, 501 for images, audio and files.
ApiJson read_messages(const ApiJson& messages);

struct ToolNames {
  std::set<std::string> all = {};
  std::set<std::string> strict = {};  // of them those whose arguments must satisfy their schema
};

// [{"type": "function", "function": {"name", "description", "parameters", "strict"}}], without
// "strict", which templates know nothing of. 400 for two of one name, and for parameters that are
// no object.
ApiJson read_tools(const ApiJson& tools, ToolNames& names);

// Adds what a request says of a template's own variables to `variables`: words, numbers and truth
// values under names that mean nothing here.
void add_template_variables(const ApiJson& kwargs, ApiJson& variables);

}  // namespace trireme
