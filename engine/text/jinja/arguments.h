// What functions, filters and methods take from their arguments.
#pragma once

#include "engine/text/jinja/value.h"

namespace trireme::jinja {

// Argument number i or of that name: a whole number; `fallback` where it is absent or none.
int64_t integer_at(const Arguments& a, size_t i, const char* name, int64_t fallback);
bool flag_at(const Arguments& a, size_t i, const char* name, bool fallback);
// A string that must be there; `of` is what wants it.
const std::string& text_at(const Arguments& a, size_t i, const char* name, const char* of);
const std::string& text_in(const Value& v, const char* of);

}  // namespace trireme::jinja
