// Case mappings of a template's strings, as Python's str has them: full mappings (Unicode's
// SpecialCasing.txt), where a character becomes several (U+00DF: "SS") and a sigma at the end of a
// word is another one. Marks (engine/text/jinja/characters.h) are kept.
#pragma once

#include <string>

namespace trireme::jinja {

std::string upper_case(const std::string& s);
std::string lower_text(const std::string& s);
std::string swapped_case(const std::string& s);
std::string case_folded(const std::string& s);
// str.title(): the first letter of every run of cased characters large, the others small.
std::string title_case(const std::string& s);
// The filter title: the first character behind white space, -, (, {, [ and < large, the others
// small.
std::string words_capitalized(const std::string& s);
// str.capitalize(): the first character large, the others small.
std::string capitalized(const std::string& s);
// "isupper", "islower", "istitle"
bool is_cased(const std::string& s, const std::string& kind);

}  // namespace trireme::jinja
