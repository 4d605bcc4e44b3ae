// Regular expressions as grammars. Supports the regular part of the syntax of JSON Schema's
// `pattern` (ECMA-262): literals, `.` (no line end), classes with \d \w \s (ASCII) and their
// complements (\S excludes all Unicode white space), escapes \t \n \r \f \v \0 \xHH \uHHHH
// \u{H...}, groups (capturing or not, named or not), alternatives, * + ? {n} {n,} {n,m} (lazy ones
// have the same texts; at most 10000 turns), ^ at the start and $ at the end of the alternatives of
// the whole expression.
//
// InputError for anything else: backreferences, lookaround, \b, \p, flags.
#pragma once

#include <string_view>

#include "serving/structured/grammar.h"

namespace trireme {

enum class RegexUse {
  kWholeText,   // the whole text matches
  kJsonString,  // content of a JSON string with a match anywhere in it
};

Grammar::Node regex_grammar(Grammar& grammar, std::string_view expression, RegexUse use);

// Reads the character of valid UTF-8 at `at` and advances `at` past it. InputError for invalid
// UTF-8.
uint32_t next_char(std::string_view text, size_t& at);

}  // namespace trireme
