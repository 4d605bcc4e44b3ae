// Variables of a chat template from a conversation, with the changes that transformers 5 makes
// before rendering.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/chat_template.h"

namespace trireme {

// Returns a noncharacter (Unicode 23.7, U+FDD0 to U+FDEF) that no string of the value contains, to
// mark positions with. InputError if all of them are used.
std::string unused_noncharacter(const nlohmann::ordered_json& value);

// Message member with text that the template does not read: its name, and the text without white
// space at its ends.
struct MessageMember {
  std::string name, text;
};

// Normalizes "messages" and "tools" of the variables: removes null members of messages, parses
// tools given as the text of a list, and copies the assistant's reasoning to each of its names
// (reasoning_content and thinking; reasoning if the template reads neither). Returns the members
// with text that the template does not read, at most 64, without those of the protocol (role, ids,
// types, weights), and without reasoning if the template reads any of its names. InputError if
// "messages" is not a list of objects, or if "tools" is text but not a JSON list.
std::vector<MessageMember> read_chat_variables(nlohmann::ordered_json& variables,
                                               const ChatTemplate& chat);
// Returns the names of those members whose text is in the rendered text neither as it is nor as a
// JSON string, each once. A template may write whole messages as JSON: their text is then rendered
// although its member is not read.
std::vector<std::string> lost_members(const std::vector<MessageMember>& unread,
                                      const std::string& text);

// Returns the path of the first tool call whose arguments are text instead of an object, such as
// "messages[1].tool_calls[0].function.arguments"; "" if there is none. Templates that iterate over
// arguments fail on text.
std::string text_arguments(const nlohmann::ordered_json& variables);

// End of the last message's text, for a response that continues it ("continue_final_message": true,
// or the name of a member other than "content").
class FinalMessage {
 public:
  // Removes the variable and, if it was set, marks the end of the text. InputError in combination
  // with "add_generation_prompt", and if the last message has no such text.
  explicit FinalMessage(nlohmann::ordered_json& variables);
  // Truncates the rendered text at the mark, or at the white space before it if the template has
  // stripped the message, and removes the breaks and generated ranges after it. InputError if the
  // mark is missing.
  void cut(RenderedChat& chat, std::vector<size_t>& breaks) const;

 private:
  std::string mark_;  // "": not set
};

}  // namespace trireme
