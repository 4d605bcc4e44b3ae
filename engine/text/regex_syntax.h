// Translation of regular expressions from Oniguruma's syntax, which the tokenizers library uses, to
// PCRE2's. docs/reference/regular-expressions.md is the table of constructs.
#pragma once

#include <string>

namespace trireme {

// PCRE2 expression that matches what `pattern` matches in Oniguruma, for PCRE2_UTF, PCRE2_UCP and
// newlines that are line feeds. InputError, prefixed by `what`, for an invalid expression and for a
// construct without a translation.
std::string translated_regex(const std::string& pattern, const std::string& what);

}  // namespace trireme
