// Position of a message's text in the output of a chat template, found with marks.
//
// It is needed for templates that render a response differently when messages follow it (without
// its thinking, with another closing token): rendering the conversation up to the message does not
// show the position then. Instead the conversation is rendered a second time, with a character that
// no text contains (unused_noncharacter()) before and after each text of the message, including
// thinking and tool calls. The marks are inside surrounding white space, and one more follows
// <think> ... </think>, so that the template strips white space and thinking as before. The caller
// checks that the output without the marks equals the output of the unmarked conversation.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "training/data/examples/record.h"

namespace trireme {

// Copy of the messages with marks around all texts of message `index`.
Json with_marks(const Json& messages, size_t index, const std::string& mark);

// Removes all marks from `text`. Returns the byte range between the first and the last of them;
// nullopt if there are none.
std::optional<std::pair<size_t, size_t>> take_out_marks(std::string& text, const std::string& mark);

}  // namespace trireme
