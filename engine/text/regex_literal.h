// Literal text of a regular expression, as a fragment of PCRE2.
#pragma once

#include <string>

#include "engine/text/regex_cursor.h"

namespace trireme {

// ignore_case: each character matches those with the same case folding, and with `sequences`,
// where foldings of several characters are among it ("ss", "st", U+00DF), what folds to them, too.
std::string literal_fragment(const std::u32string& literal, bool ignore_case, bool sequences,
                             const PatternCursor& cursor);

}  // namespace trireme
