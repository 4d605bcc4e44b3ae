// Literal text of a regular expression, as a fragment of PCRE2.
#pragma once

#include <string>

#include "engine/text/regex_cursor.h"

namespace trireme {

// Returns the PCRE2 fragment of a literal. ignore_case: each character matches those with the same
// case folding; with `sequences`, foldings of several characters in it ("ss", "st", U+00DF) also
// match the characters that fold to them.
std::string literal_fragment(const std::u32string& literal, bool ignore_case, bool sequences,
                             const PatternCursor& cursor);

}  // namespace trireme
