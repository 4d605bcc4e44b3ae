// Messages of fine-tuning records, shared by all record forms.
#pragma once

#include <string>

#include "engine/config/json.h"

namespace trireme {

// Member of a record; nullptr if it is missing or null.
const Json* record_member(const Json& record, const char* name);
// Text member, "" if it is missing. InputError for any other type.
std::string record_text(const Json& record, const char* name);

// Checks a list of messages. InputError if it is not a list of objects with a "role", if a "weight"
// is neither 0 nor 1, or if a message has no content: "content" must be a string or a list of
// parts, and may be missing only with an assistant's "tool_calls".
void check_messages(const Json& messages, const char* name);
Json first_of(const Json& messages, size_t count);
bool is_assistant(const Json& message);
// True if a message may have loss: not with "weight": 0 (OpenAI's name) or "train": false
// (Axolotl's).
bool may_be_learned(const Json& message);
// Adds "tools", "documents" and the members of "chat_template_kwargs" to a template's variables.
// InputError if the kwargs are not an object, or set a variable that is also a member of the
// record.
void add_record_variables(const Json& record, Json& variables);
Json text_message(const char* role, std::string content);

// {"conversations": [{"from": ..., "value": ...}], "system": ...}, ShareGPT's names.
Json messages_of_conversations(const Json& record);
// Prompt text with which Alpaca was trained (Taori et al. 2023).
std::string alpaca_prompt(const std::string& instruction, const std::string& input);

// Pair of responses to one prompt, {"prompt", "chosen", "rejected"}: each a text, or each a list of
// messages. Conversations in "chosen" and "rejected" may repeat the prompt. If the prompt is
// missing, their common prefix is the prompt. A prompt given as text with message lists becomes a
// user message, a response given as text an assistant message. InputError if the responses are
// equal or one is empty.
Json preference_pair(const Json& record);

}  // namespace trireme
