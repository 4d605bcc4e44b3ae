// String operations of templates, like Python's.
#pragma once

#include "engine/text/jinja/nodes.h"

namespace trireme::jinja {

// Removes characters of `chars` at the ends; nullptr: white space.
std::string stripped(const std::string& s, const std::string* chars, bool left, bool right);
// White space, -, (, {, [ and <, after which the filter title starts a word.
bool separates_words(std::string_view character);
List lines_of(const std::string& s);
// separator nullptr: white space. most: number of splits, -1 for all.
List split_text(const std::string& s, const std::string* separator, int64_t most, bool from_right);
std::string replaced_text(Renderer& r, const std::string& s, const std::string& from,
                          const std::string& to, int64_t most);
int64_t count_of(const std::string& s, const std::string& part);
std::string joined_text(Renderer& r, const List& items, const std::string& between);
// Pads with `fill` (one character) to the width: '<' after the text, '>' before it, '^' on both
// sides, an odd one after it; as_center: as in str.center().
std::string padded(Renderer& r, const std::string& s, int64_t width, const std::string& fill,
                   char align, bool as_center = false);
int64_t words_in(const std::string& s);
// "isdigit", "isdecimal", "isnumeric" (without numeric ideographs), "isspace", "isalpha",
// "isalnum", "isascii"
bool is_all(const std::string& s, const std::string& kind);

}  // namespace trireme::jinja
