// Variables of a chat template as a conversation gives them: what transformers 5 change of them
// before they render.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/chat_template.h"

namespace trireme {

// A character that stands for nothing in any text (Unicode 23.7, noncharacters U+FDD0 to U+FDEF)
// and that no string of the value has: to mark places with. InputError where all of them are used.
std::string unused_noncharacter(const nlohmann::ordered_json& value);

// A member of a message with text that no line of the template reads: its name and the text.
struct MessageMember {
  std::string name, text;
};

// Reads "messages" and "tools" of the variables: members of messages that are null are left out,
// tools that are the text of a list become the list, and what an assistant thought is found under
// each name of it (reasoning_content and thinking; reasoning where the template reads neither of
// these). Returns the members given that the template does not read, at most 64; what belongs to
// the protocol is none (role, ids, types, weights). InputError where "messages" is no list of
// objects, or "tools" is no list.
std::vector<MessageMember> read_chat_variables(nlohmann::ordered_json& variables,
                                               const ChatTemplate& chat);
// The names of those that are not part of the rendered text either (a template may write a message
// as JSON), each once.
std::vector<std::string> lost_members(const std::vector<MessageMember>& unread,
                                      const std::string& text);

// "messages[1].tool_calls[0].function.arguments" where it is text: some templates walk over it. ""
// where all are objects.
std::string text_arguments(const nlohmann::ordered_json& variables);

// The end of the last message's text, where the conversation is to go on: "continue_final_message"
// is true, or names another member than "content".
class FinalMessage {
 public:
  // Takes the variable out, and marks the end of the text where it is set. InputError beside
  // "add_generation_prompt", and where there is no such text.
  explicit FinalMessage(nlohmann::ordered_json& variables);
  // Cuts the rendered text off at the mark, with the white space before it where the template has
  // stripped the message, and what was found behind it. InputError where the mark is gone.
  void cut(RenderedChat& chat, std::vector<size_t>& breaks) const;

 private:
  std::string mark_;  // "": it is not set
};

}  // namespace trireme
