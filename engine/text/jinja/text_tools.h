// String operations of templates, like Python's.
#pragma once

#include "engine/text/jinja/nodes.h"

namespace trireme::jinja {

// Removes the characters in `chars` at the left or right end; nullptr: white space.
std::string stripped(const std::string& s, const std::string* chars, bool left, bool right);
// Returns whether the filter title starts a word after this character: white space, -, (, {, [ or
// <.
bool separates_words(std::string_view character);
List lines_of(const std::string& s);  // str.splitlines(): without the line ends
// separator nullptr: white space; fails if it is empty. most: maximum number of splits, -1 for all.
List split_text(const std::string& s, const std::string* separator, int64_t most, bool from_right);
// most: maximum number of replacements, -1 for all. from "": before every character and at the end.
std::string replaced_text(Renderer& r, const std::string& s, const std::string& from,
                          const std::string& to, int64_t most);
int64_t count_of(const std::string& s, const std::string& part);  // without overlaps
std::string joined_text(Renderer& r, const List& items, const std::string& between);
// Pads with `fill` (one character) to the width: with '<' after the text, with '>' before it, with
// '^' on both sides and an odd one after it, or with as_center where str.center() puts it.
std::string padded(Renderer& r, const std::string& s, int64_t width, const std::string& fill,
                   char align, bool as_center = false);
int64_t words_in(const std::string& s);  // matches of Python's \w+
// str.isdigit(), isdecimal(), isnumeric() (without numeric ideographs), isspace(), isalpha(),
// isalnum() or isascii(); kind: its name. False for "", except isascii().
bool is_all(const std::string& s, const std::string& kind);

}  // namespace trireme::jinja
