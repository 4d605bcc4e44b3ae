// Cursor over a regular expression of Oniguruma, and what its parts have in common.
#pragma once

#include <string>
#include <string_view>

#include "engine/text/regex_class.h"

namespace trireme {

inline constexpr int kMaxPatternDepth = 100;  // of groups and classes within each other

struct PatternCursor {
  std::string_view text;  // valid UTF-8
  std::string what;       // begins messages
  size_t at = 0;
  int depth = 0;

  bool done() const { return at >= text.size(); }
  // The byte `ahead` of the next one; '\0' behind the end.
  char peek(size_t ahead = 0) const { return at + ahead < text.size() ? text[at + ahead] : '\0'; }
  bool take(std::string_view expected);
  // Text before `end`, which is taken too; fails if it is missing.
  std::string take_until(char end);
  char32_t take_character();
  int take_number();  // -1 where there is none; fails above 100000, Oniguruma's largest
  [[noreturn]] void fail(const std::string& why) const;
  [[noreturn]] void refuse(const std::string& construct) const;
};

// Escape of characters behind a backslash (\n, \x.., \x{..}, \u.., \o{..}, \cx, octal): appends
// them, usually one, to `out`. False, with nothing taken, if it is another kind of escape.
bool read_code_escape(PatternCursor& cursor, bool in_class, std::u32string& out);
// \w, \d, \s, \h, \p{..} and their opposites, behind a backslash; false if it is another escape.
bool read_set_escape(PatternCursor& cursor, bool in_class, CharacterSet& out);
// Class behind its "[".
CharacterSet read_class(PatternCursor& cursor);

}  // namespace trireme
