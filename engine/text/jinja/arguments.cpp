#include "engine/text/jinja/arguments.h"

#include <algorithm>
#include <vector>

#include "engine/core/error.h"

namespace trireme::jinja {

namespace {

// Parameters of filters after the value, as in Jinja2's functions. Filters not listed accept any
// (format, map, select and similar).
struct FilterParameters {
  const char* filter;
  std::vector<std::string_view> names;
};

const std::vector<FilterParameters>& filter_parameters() {
  static const std::vector<FilterParameters> kParameters = {
      {"abs", {}},
      {"attr", {"name"}},
      {"batch", {"linecount", "fill_with"}},
      {"capitalize", {}},
      {"center", {"width"}},
      {"count", {}},
      {"d", {"default_value", "boolean"}},
      {"default", {"default_value", "boolean"}},
      {"dictsort", {"case_sensitive", "by", "reverse"}},
      {"e", {}},
      {"escape", {}},
      {"first", {}},
      {"float", {"default"}},
      {"forceescape", {}},
      {"groupby", {"attribute", "default", "case_sensitive"}},
      {"indent", {"width", "first", "blank"}},
      {"int", {"default", "base"}},
      {"items", {}},
      {"join", {"d", "attribute"}},
      {"last", {}},
      {"length", {}},
      {"list", {}},
      {"lower", {}},
      {"max", {"case_sensitive", "attribute"}},
      {"min", {"case_sensitive", "attribute"}},
      {"replace", {"old", "new", "count"}},
      {"reverse", {}},
      {"round", {"precision", "method"}},
      {"safe", {}},
      {"slice", {"slices", "fill_with"}},
      {"sort", {"reverse", "case_sensitive", "attribute"}},
      {"string", {}},
      {"sum", {"attribute", "start"}},
      {"title", {}},
      {"tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}},
      {"trim", {"chars"}},
      {"truncate", {"length", "killwords", "end", "leeway"}},
      {"unique", {"case_sensitive", "attribute"}},
      {"upper", {}},
      {"urlencode", {}},
      {"wordcount", {}},
  };
  return kParameters;
}

}  // namespace

void check_filter_arguments(const std::string& filter, const Arguments& a) {
  if (a.positional.empty() && a.named.empty()) return;
  const auto known = std::ranges::find(filter_parameters(), filter, &FilterParameters::filter);
  if (known == filter_parameters().end()) return;
  const auto& names = known->names;
  if (a.positional.size() > names.size())
    fail(concat("the filter \"", filter, "\" takes at most ", names.size(), " arguments"));
  for (const auto& [name, value] : a.named) {
    const auto place = std::ranges::find(names, name);
    if (place == names.end())
      fail(concat("the filter \"", filter, "\" takes no argument \"", name, "\""));
    if (place - names.begin() < std::ssize(a.positional))
      fail(concat("the filter \"", filter, "\" is given \"", name, "\" twice"));
  }
}

int64_t integer_at(const Arguments& a, size_t i, const char* name, int64_t fallback) {
  const Value* v = a.find(i, name);
  int64_t out = fallback;
  if (v != nullptr && !v->is_none() && !v->to_integer(out))
    fail(concat("\"", name, "\" is not a whole number"));
  return out;
}

bool flag_at(const Arguments& a, size_t i, const char* name, bool fallback) {
  const Value* v = a.find(i, name);
  return v != nullptr ? v->truth() : fallback;
}

const std::string& text_at(const Arguments& a, size_t i, const char* name, const char* of) {
  const Value* v = a.find(i, name);
  if (v == nullptr) fail(concat(of, " expects a string"));
  return text_in(*v, of);
}

const std::string* text_or_none(const Arguments& a, size_t i, const char* name) {
  const Value* v = a.find(i, name);
  return v == nullptr || v->is_none() ? nullptr : &text_in(*v, name);
}

const std::string& text_in(const Value& v, const char* of) {
  if (v.string() == nullptr) fail(concat(of, " expects a string, not a ", type_name(v)));
  return *v.string();
}

}  // namespace trireme::jinja
