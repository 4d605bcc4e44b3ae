// Messages and tools of a chat, as chat templates take them. For .cpp files only (it includes the
// JSON library).
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "serving/api/field_table.h"

namespace trireme {

// Messages with the members that templates may read: role, content (a string; of several parts
// their texts, a line each), tool_calls (arguments as objects; what is no object as the text that
// it is, as a model wrote it), tool_call_id, and every other member that is text. "developer" is
// "system", "function" is "tool". Other members that say something are left out; `unknown` gets
// their names ("messages[].audio"). 400 for what is no conversation, 501 for images, audio and
// files.
ApiJson read_messages(const ApiJson& messages, std::vector<std::string>& unknown);
// Texts beside the messages: objects of at most 64 KiB each.
ApiJson read_documents(const ApiJson& documents);

struct ToolNames {
  std::set<std::string> all = {};
  std::set<std::string> strict = {};  // of them those whose arguments must satisfy their schema
};

// [{"type": "function", "function": {"name", "description", "parameters", "strict"}}], without
// "strict", which templates know nothing of. 400 for two of one name, and for parameters that are
// no object.
ApiJson read_tools(const ApiJson& tools, ToolNames& names);

// Adds add_generation_prompt ({}: true, but where the last message goes on) and, where it is true,
// continue_final_message. 400 for both.
void add_prompt_ending(std::optional<bool> add_generation_prompt, bool continue_final_message,
                       ApiJson& variables);

// Adds what a request says of a template's own variables to `variables`: words, numbers and truth
// values under names that mean nothing here. Where `variables` has reasoning_effort, also the
// switches that other templates read, enable_thinking and thinking, unless the request has them:
// false for "none", else true.
void add_template_variables(const ApiJson& kwargs, ApiJson& variables);

}  // namespace trireme
