// Grammar whose masks are slow to compute, because its rules nest deeply.
#pragma once

#include "serving/structured/grammar_compiler.h"

namespace trireme::test {

// Each nesting level has its own states.
inline const GrammarSource kDeep{
    GrammarSource::Kind::kGrammar,
    "root ::= \"(\" item* \")\"\nitem ::= root | [a-c]{1,9} (\"-\" | root)"};
inline const std::vector<std::string> kManyDeep = {"((", "(((", "(a", "ab",
                                                   "a-", "-(",  "))", "c(("};

}  // namespace trireme::test
