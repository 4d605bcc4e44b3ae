// Translation of regular expressions from Oniguruma's syntax, which the tokenizers library uses, to
// PCRE2's. docs/reference/regular-expressions.md is the table of constructs.
#pragma once

#include <string>

namespace trireme {

// Returns a PCRE2 expression with the same matches as `pattern` in Oniguruma, for PCRE2_UTF,
// PCRE2_UCP and line feeds as newlines. InputError, prefixed by `what`, for an invalid expression
// and for a construct without a translation.
std::string translated_regex(const std::string& pattern, const std::string& what);

}  // namespace trireme
