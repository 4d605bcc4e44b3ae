// What the forms of fine-tuning records have in common: messages.
#pragma once

#include <string>

#include "engine/config/json.h"

namespace trireme {

// The member; nullptr where there is none, or it is null.
const Json* record_member(const Json& record, const char* name);
// A member that is text, "" where there is none. InputError for anything else.
std::string record_text(const Json& record, const char* name);

// InputError where it is no list of objects with a "role", the "weight" of one is neither 0 nor 1,
// or one says nothing:
// its "content" must be a string or a list of parts, and may be absent beside an assistant's
// "tool_calls" only.
void check_messages(const Json& messages, const char* name);
Json first_of(const Json& messages, size_t count);
bool is_assistant(const Json& message);
// Whether a message may have loss: "weight": 0 (OpenAI's word) and "train": false (Axolotl's) say
// no.
bool may_be_learned(const Json& message);
// Adds "tools", "documents" and what "chat_template_kwargs" has to a template's variables.
// InputError for kwargs that are no object, or that name what the record has its own member for.
void add_record_variables(const Json& record, Json& variables);
Json text_message(const char* role, std::string content);

// {"conversations": [{"from": ..., "value": ...}], "system": ...}, ShareGPT's words.
Json messages_of_conversations(const Json& record);
// Taori et al. 2023, the text that Alpaca was trained with.
std::string alpaca_prompt(const std::string& instruction, const std::string& input);

// A pair of answers to one prompt, {"prompt", "chosen", "rejected"}: each text, or each a list of
// messages. Answers that are conversations may repeat the prompt, and the prompt may be absent:
// what they begin with alike is the prompt then. A prompt or an answer that is text beside messages
// is a message of the user's, or of the assistant's. InputError where the answers are the same, or
// one is empty.
Json answer_pair(const Json& record);

}  // namespace trireme
