// Regular expressions as grammars: what JSON Schema's `pattern` is written in (ECMA-262), without
// what is no regular language: literals, `.` (no line end), classes with \d \w \s (ASCII) and their
// complements, escapes \t \n \r \f \v \xHH \uHHHH \u{H...}, groups (capturing or not, named or
// not), alternatives, * + ? {n} {n,} {n,m} (lazy ones have the same texts), ^ at the beginning and
// $ at the end of the whole expression's alternatives.
//
// InputError for anything else: backreferences, lookaround, \b, \p, flags.
#pragma once

#include <string_view>

#include "serving/structured/grammar.h"

namespace trireme {

enum class RegexUse {
  kWholeText,   // the text matches from its beginning to its end
  kJsonString,  // the content of a JSON string, somewhere in which there is a match
};

Grammar::Node regex_grammar(Grammar& grammar, std::string_view expression, RegexUse use);

// The next character of valid UTF-8, at `at`, which is moved behind it. InputError for what is
// none.
uint32_t next_char(std::string_view text, size_t& at);

}  // namespace trireme
