// Readers of a chat's messages, tools and template variables, which return them in the form that
// chat templates use. For .cpp files only (includes the JSON library).
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "serving/api/field_table.h"

namespace trireme {

// Returns the messages with the members that templates may use:
//  - role: "developer" is converted to "system", "function" is converted to "tool";
//  - content: a string; several text parts are joined, one per line; null if it is absent beside
//    tool_calls;
//  - tool_calls of an assistant, with arguments as objects; malformed arguments stay text, as a
//    model wrote them;
//  - tool_call_id, name, reasoning_content, and every other member with a non-empty string value.
// Drops all other members. Appends the names of those that are not null, false or empty to
// `unknown`, at most 32 ("messages[].audio"). Throws ApiError 400 for an invalid conversation, 501
// for content parts other than text and refusals, such as images, audio and files.
ApiJson read_messages(const ApiJson& messages, std::vector<std::string>& unknown);
// Returns the documents for the template, unchanged. Throws ApiError 400 unless they are objects of
// at most 64 KiB each.
ApiJson read_documents(const ApiJson& documents);

struct ToolNames {
  std::set<std::string> all = {};
  std::set<std::string> strict = {};  // those whose arguments must match their schema
};

// Returns the tools, [{"type": "function", "function": {"name", "description", "parameters",
// "strict"}}], without "strict", which templates do not use. Adds their names to `names`. Throws
// ApiError 400 for no tool, more than 128, an invalid tool, duplicate names, and parameters that do
// not describe an object; 501 for another type of tool.
ApiJson read_tools(const ApiJson& tools, ToolNames& names);

// Sets add_generation_prompt in `variables`; nullopt: true, but false with continue_final_message.
// Also sets continue_final_message if it is true. Throws ApiError 400 if both are true.
void add_prompt_ending(std::optional<bool> add_generation_prompt, bool continue_final_message,
                       ApiJson& variables);

// Adds the request's template variables to `variables`: strings, numbers and booleans under names
// that are not reserved. If `variables` has reasoning_effort, also sets enable_thinking and
// thinking, which other templates use, to false for "none", else to true, unless the request sets
// them. Throws ApiError 400 for a name that is reserved or already in `variables`, a value of
// another type, and a value of more than 256 bytes.
void add_template_variables(const ApiJson& kwargs, ApiJson& variables);

}  // namespace trireme
