// Where a chat template puts what a message says, for templates that nobody can ask by leaving
// messages away:
// those that write an answer in another way when more follow (without its thinking, with another
// mark of the end).
//
// The conversation is written once more with a character that no text has (unused_noncharacter())
// around what the message says: its texts, thinking and calls of tools included. What the template
// makes of white space and of <think> ... </think> still holds, because the marks stand inside of
// it; where a template wrote something else for them nevertheless, the texts without marks differ,
// and nothing is said about the place.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "training/data/examples/record.h"

namespace trireme {

// The messages with marks around the texts of one of them.
Json with_marks(const Json& messages, size_t index, const std::string& mark);

// Takes all marks out of a text. Returns the bytes of it between the first and the last; nothing
// without marks.
std::optional<std::pair<size_t, size_t>> take_out_marks(std::string& text, const std::string& mark);

}  // namespace trireme
