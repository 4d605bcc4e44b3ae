#include "engine/text/jinja/arguments.h"

#include "engine/core/error.h"

namespace trireme::jinja {

int64_t integer_at(const Arguments& a, size_t i, const char* name, int64_t fallback) {
  const Value* v = a.find(i, name);
  int64_t out = fallback;
  if (v != nullptr && !v->is_none() && !v->to_integer(out))
    fail(concat("\"", name, "\" is no whole number"));
  return out;
}

bool flag_at(const Arguments& a, size_t i, const char* name, bool fallback) {
  const Value* v = a.find(i, name);
  return v != nullptr ? v->truth() : fallback;
}

const std::string& text_at(const Arguments& a, size_t i, const char* name, const char* of) {
  const Value* v = a.find(i, name);
  if (v == nullptr) fail(concat(of, " wants a string"));
  return text_in(*v, of);
}

const std::string& text_in(const Value& v, const char* of) {
  if (v.string() == nullptr) fail(concat(of, " wants a string, not a ", type_name(v)));
  return *v.string();
}

}  // namespace trireme::jinja
