// Members and messages of fine-tuning records; training/data/examples/example.h lists the forms.
#pragma once

#include <string>

#include "engine/config/json.h"

namespace trireme {

// Member of a record; nullptr if it is missing or null.
const Json* record_member(const Json& record, const char* name);
// String member; "" if it is missing or null. InputError for any other type.
std::string record_text(const Json& record, const char* name);

// Checks a list of messages; `name` is its name in errors. InputError unless every message is an
// object with a "role" and a "content". "content" is a string or a list of parts, in a tool's
// message also an object; only an assistant's message with "tool_calls" may omit it. "weight" must
// be 0 or 1, "train" a boolean.
void check_messages(const Json& messages, const char* name);
// The first `count` messages.
Json first_of(const Json& messages, size_t count);
bool is_assistant(const Json& message);
// False if a message is excluded from the loss by "weight": 0 (OpenAI's name) or "train": false
// (Axolotl's).
bool has_loss(const Json& message);
// Adds "tools", "documents" and the members of "chat_template_kwargs" to a template's variables.
// InputError if the kwargs are not an object, or set a name that is already in `variables` or is
// reserved: "tools", "documents", "chat_template" or "continue_final_message".
void add_record_variables(const Json& record, Json& variables);
Json text_message(const char* role, std::string content);

// Messages of a ShareGPT record: {"conversations": [{"from": ..., "value": ...}], "system": ...}.
Json messages_of_conversations(const Json& record);
// Prompt of Stanford's Alpaca (Taori et al. 2023).
std::string alpaca_prompt(const std::string& instruction, const std::string& input);

// Preference pair of a record: an object with "prompt", "chosen" and "rejected", which are three
// strings or three lists of messages.
//  - Lists in the record may repeat the prompt in both responses.
//  - If the record has no prompt, it is the common prefix of the responses: up to a word boundary
//    of two strings, whole messages of two lists.
//  - If strings and lists are mixed, a string becomes a user message (the prompt) or an assistant
//    message (a response). If both responses are lists whose common first messages contain the
//    string prompt, these messages are the prompt instead.
// InputError if a response is missing or empty, if both are equal, or if the record has neither a
// prompt nor a common prefix.
Json preference_pair(const Json& record);

}  // namespace trireme
