// Access to the arguments of functions, filters and methods.
#pragma once

#include "engine/text/jinja/value.h"

namespace trireme::jinja {

// Integer argument, by position i or by name; `fallback` if absent or none.
int64_t integer_at(const Arguments& a, size_t i, const char* name, int64_t fallback);
// Truth of an argument; `fallback` if absent.
bool flag_at(const Arguments& a, size_t i, const char* name, bool fallback);
// Required string argument; `of` names the callee in messages.
const std::string& text_at(const Arguments& a, size_t i, const char* name, const char* of);
// Fails if the filter of this name does not have these arguments: too many, unknown, or given
// twice.
void check_filter_arguments(const std::string& filter, const Arguments& a);
// String argument, or nullptr if absent or none.
const std::string* text_or_none(const Arguments& a, size_t i, const char* name);
// String of a value; fails for other types.
const std::string& text_in(const Value& v, const char* of);

}  // namespace trireme::jinja
