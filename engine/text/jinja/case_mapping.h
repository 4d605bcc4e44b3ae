// Case mappings of template strings, like Python's str: full mappings (Unicode's
// SpecialCasing.txt), where one character may map to several (U+00DF: "SS") and a final sigma has
// its own form. Marks (engine/text/jinja/characters.h) are kept.
#pragma once

#include <string>

namespace trireme::jinja {

std::string upper_case(const std::string& s);
std::string lower_text(const std::string& s);
std::string swapped_case(const std::string& s);
std::string case_folded(const std::string& s);
// str.title(): the first letter of every run of cased characters in upper case, the others in lower
// case.
std::string title_case(const std::string& s);
// Filter title: the first character after white space, -, (, {, [ and < in upper case, the others
// in lower case.
std::string words_capitalized(const std::string& s);
// str.capitalize(): the first character in upper case, the others in lower case.
std::string capitalized(const std::string& s);
// str.isupper(), str.islower() or str.istitle(); kind: its name.
bool is_cased(const std::string& s, const std::string& kind);

}  // namespace trireme::jinja
