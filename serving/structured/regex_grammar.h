// Regular expressions as grammars. Supports the regular part of the syntax of JSON Schema's
// `pattern` (ECMA-262):
//  - literals, `.` (no line end), and escapes \t \n \r \f \v \0 \xHH \uHHHH \u{H...} and of
//    punctuation;
//  - classes with \d \w \s (ASCII) and their complements; \S and [^\s] exclude all Unicode white
//    space;
//  - groups (capturing or not, named or not) and alternatives;
//  - * + ? {n} {n,} {n,m}, with n and m at most 10000; lazy ones have the same texts;
//  - ^ at the start and $ at the end of the alternatives of the whole expression.
//
// InputError for anything else, such as backreferences, lookaround, \b outside a class, \p, flags
// and invalid UTF-8.
#pragma once

#include <string_view>

#include "serving/structured/grammar.h"

namespace trireme {

enum class RegexUse {
  kWholeText,   // the whole text matches, also without ^ and $
  kJsonString,  // content of a JSON string, without quotes, with a match anywhere in it
};

Grammar::Node regex_grammar(Grammar& grammar, std::string_view expression, RegexUse use);

// Reads the character of valid UTF-8 at `at` and advances `at` past it. InputError for invalid
// UTF-8.
uint32_t next_char(std::string_view text, size_t& at);

}  // namespace trireme
