// Position of a message's text in the output of a chat template, for templates where removing the
// later messages does not reveal it: those that write a response differently when messages follow
// (without its thinking, with another end mark).
//
// The conversation is written a second time with a character that no text contains
// (unused_noncharacter()) around the message's texts, including thinking and tool calls. The
// template's handling of white space and of <think> ... </think> still applies, because the marks
// are inside of it. If a template nevertheless writes something else because of them, the texts
// without marks differ, and no position is returned.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "training/data/examples/record.h"

namespace trireme {

// Messages with marks around the texts of one of them.
Json with_marks(const Json& messages, size_t index, const std::string& mark);

// Removes all marks from a text. Returns the byte range between the first and the last mark, or
// nothing without marks.
std::optional<std::pair<size_t, size_t>> take_out_marks(std::string& text, const std::string& mark);

}  // namespace trireme
