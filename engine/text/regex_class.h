// Translation of Oniguruma's character classes (sets, properties, intersections) to PCRE2.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace trireme {

// Set of characters: a union of ranges, properties and sets, intersected with other unions;
// complemented if negated.
struct CharacterSet {
  std::vector<std::pair<char32_t, char32_t>> ranges;
  std::vector<std::string> properties;  // \p{...} and \P{...} of PCRE2
  std::vector<CharacterSet> sets;
  std::vector<CharacterSet> intersected;
  bool negated = false;

  void add(char32_t c) { ranges.emplace_back(c, c); }
  void add(CharacterSet set);
};

// Returns the set of \p{name}. The names "word", "digit", "space" and "xdigit" are the sets of \w,
// \d, \s and \h. InputError with `what` for a name that is unknown or has no translation. Outside
// classes, "word" includes the superscripts and fractions of Latin-1.
CharacterSet property_set(const std::string& name, bool in_class, const std::string& what);
// Set of [[:name:]]; false for an unknown name.
bool posix_set(const std::string& name, CharacterSet& out);

// Returns a PCRE2 fragment that matches one character of the set.
std::string class_fragment(const CharacterSet& set);
// The same under (?i): every character with the same case folding as a member is also a member.
// With `sequences`, a set that is not negated also matches its members' foldings to several
// characters ("ss" for U+00DF).
std::string folded_class_fragment(const CharacterSet& set, bool sequences);
// PCRE2 class of these characters.
std::string class_of(const std::u32string& characters);

std::string code_escape(char32_t c);  // \x{...}

}  // namespace trireme
