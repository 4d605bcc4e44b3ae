// What strings can do in a template, as Python's do.
#pragma once

#include "engine/text/jinja/nodes.h"

namespace trireme::jinja {

// Without the characters of `chars` at its ends; nullptr: white space.
std::string stripped(const std::string& s, const std::string* chars, bool left, bool right);
// White space, -, (, {, [ and <, behind which the filter title begins a word.
bool separates_words(std::string_view character);
List lines_of(const std::string& s);
// separator nullptr: white space. most: cuts, -1 for all.
List split_text(const std::string& s, const std::string* separator, int64_t most, bool from_right);
std::string replaced_text(Renderer& r, const std::string& s, const std::string& from,
                          const std::string& to, int64_t most);
int64_t count_of(const std::string& s, const std::string& part);
std::string joined_text(Renderer& r, const List& items, const std::string& between);
// With characters of `fill` (one character) up to the width: '<' behind it, '>' before it, '^' on
// both sides, of an odd number one more behind it; as_center: as str.center() has it.
std::string padded(Renderer& r, const std::string& s, int64_t width, const std::string& fill,
                   char align, bool as_center = false);
int64_t words_in(const std::string& s);
// "isdigit", "isdecimal", "isnumeric" (without ideographs that are numbers), "isspace", "isalpha",
// "isalnum", "isascii"
bool is_all(const std::string& s, const std::string& kind);

}  // namespace trireme::jinja
