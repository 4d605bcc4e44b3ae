// Translation of regular expressions from Oniguruma's syntax, which the tokenizers library uses, to
// PCRE2's. docs/reference/regular-expressions.md is the table of constructs.
#pragma once

#include <string>

namespace trireme {

// Expression of PCRE2 that matches what `pattern` matches in Oniguruma, for PCRE2_UTF, PCRE2_UCP
// and newlines that are line feeds. InputError, which `what` begins, for an expression that is
// invalid and for a construct that has no translation.
std::string translated_regex(const std::string& pattern, const std::string& what);

}  // namespace trireme
