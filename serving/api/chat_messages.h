// Messages and tools of a chat, in the form that chat templates read. For .cpp files only (includes
// the JSON library).
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "serving/api/field_table.h"

namespace trireme {

// Messages with the members that templates may read: role, content (a string; several text parts
// are joined, one per line), tool_calls (arguments as objects; malformed arguments stay the text
// that a model wrote), tool_call_id, and every other member with a string value. Converts
// "developer" to "system" and "function" to "tool". Drops other non-empty members and appends their
// names to `unknown` ("messages[].audio"). Throws 400 for an invalid conversation, 501 for images,
// audio and files.
ApiJson read_messages(const ApiJson& messages, std::vector<std::string>& unknown);
// Texts given beside the messages: objects of at most 64 KiB each.
ApiJson read_documents(const ApiJson& documents);

struct ToolNames {
  std::set<std::string> all = {};
  std::set<std::string> strict = {};  // those whose arguments must match their schema
};

// [{"type": "function", "function": {"name", "description", "parameters", "strict"}}], returned
// without "strict", which templates do not read. Throws 400 for duplicate names, and for parameters
// that are not an object.
ApiJson read_tools(const ApiJson& tools, ToolNames& names);

// Sets add_generation_prompt (if absent: true unless continue_final_message) and, if true,
// continue_final_message. Throws 400 if both are true.
void add_prompt_ending(std::optional<bool> add_generation_prompt, bool continue_final_message,
                       ApiJson& variables);

// Adds the request's variables for the template to `variables`: strings, numbers and booleans under
// names that are not reserved. If `variables` has reasoning_effort, also sets the switches of other
// templates, enable_thinking and thinking, to false for "none" and else to true, unless the request
// sets them.
void add_template_variables(const ApiJson& kwargs, ApiJson& variables);

}  // namespace trireme
