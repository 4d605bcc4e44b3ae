// Parser of grammars in llama.cpp's format (GBNF):
//
//   root  ::= "yes" | "no" reason?        # the text is one of `root`
//   reason ::= " because " [a-z ]{1,40} "."
//
// Literals in double quotes and classes in brackets with \n \r \t \\ \" \[ \] \- \^ \xHH \uHHHH
// \UHHHHHHHH, `.` (any character), rules by name (letters, digits, -, _), groups, | for
// alternatives, * + ? {n} {n,} {n,m}, comments from # to the end of the line. A rule may span
// lines, up to the next `name ::=`. Numbers of repetitions are at most 10000. InputError with the
// line of a syntax error, or with the name of a rule that is not defined. PushdownAutomaton refuses
// left-recursive rules later.
#pragma once

#include <string_view>

#include "serving/structured/grammar.h"

namespace trireme {

Grammar::Node written_grammar(Grammar& grammar, std::string_view text);

}  // namespace trireme
