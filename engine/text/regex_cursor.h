// Cursor over a regular expression of Oniguruma, and parsers of escapes and classes.
#pragma once

#include <string>
#include <string_view>

#include "engine/text/regex_class.h"

namespace trireme {

inline constexpr int kMaxPatternDepth = 100;  // of nested groups and classes

struct PatternCursor {
  std::string_view text;  // valid UTF-8
  std::string what;       // prefix of messages
  size_t at = 0;
  int depth = 0;

  bool done() const { return at >= text.size(); }
  // Returns the byte `ahead` positions after the next one; '\0' past the end.
  char peek(size_t ahead = 0) const { return at + ahead < text.size() ? text[at + ahead] : '\0'; }
  bool take(std::string_view expected);  // consumes this text if it is next; else false
  // Consumes and returns the text up to `end`, and consumes `end`; fails if it is missing.
  std::string take_until(char end);
  char32_t take_character();
  int take_number();  // -1 if there is none; fails above 100000, Oniguruma's maximum
  // Throw InputError: the expression is invalid, or uses a construct without a translation.
  [[noreturn]] void fail(const std::string& why) const;
  [[noreturn]] void refuse(const std::string& construct) const;
};

// Parses an escape of characters after the backslash (\n, \x.., \x{..}, \u.., \o{..}, \cx, octal):
// appends them, usually one, to `out`. False, with nothing consumed, if it is another kind of
// escape.
bool read_code_escape(PatternCursor& cursor, bool in_class, std::u32string& out);
// Parses \w, \d, \s, \h, \p{..} and their complements after the backslash; false if it is another
// escape.
bool read_set_escape(PatternCursor& cursor, bool in_class, CharacterSet& out);
// Parses a class after its "[".
CharacterSet read_class(PatternCursor& cursor);

}  // namespace trireme
