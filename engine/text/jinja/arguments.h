// What functions, filters and methods take from their arguments.
#pragma once

#include "engine/text/jinja/value.h"

namespace trireme::jinja {

// Argument number i or of that name: a whole number; `fallback` where it is absent or none.
int64_t integer_at(const Arguments& a, size_t i, const char* name, int64_t fallback);
bool flag_at(const Arguments& a, size_t i, const char* name, bool fallback);
// A string that must be there; `of` is what wants it.
const std::string& text_at(const Arguments& a, size_t i, const char* name, const char* of);
// Fails for arguments that the filter of this name does not have: too many, of another name, or
// given twice.
void check_filter_arguments(const std::string& filter, const Arguments& a);
// A string, or nullptr where it is absent or none.
const std::string* text_or_none(const Arguments& a, size_t i, const char* name);
const std::string& text_in(const Value& v, const char* of);

}  // namespace trireme::jinja
