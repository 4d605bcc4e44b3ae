#include "engine/text/jinja/numbers.h"

#include <utf8proc.h>

#include <charconv>
#include <cmath>
#include <memory>
#include <optional>

#include "engine/core/error.h"
#include "engine/text/jinja/characters.h"
#include "engine/text/jinja/text_tools.h"
#include "engine/text/unicode.h"

namespace trireme::jinja {
namespace {

// Decimal digits of every script are blocks of ten, in order.
char ascii_digit(char32_t c) {
  const auto category = [](char32_t at) {
    return utf8proc_category(static_cast<utf8proc_int32_t>(at));
  };
  if (category(c) != UTF8PROC_CATEGORY_ND) return '?';
  // The mathematical digits are five adjacent blocks.
  if (c >= 0x1D7CE && c <= 0x1D7FF) return static_cast<char>('0' + (c - 0x1D7CE) % 10);
  char32_t first = c;
  while (category(first - 1) == UTF8PROC_CATEGORY_ND) --first;
  return static_cast<char>('0' + (c - first) % 10);
}

// Number text without surrounding white space, digits of other scripts in ASCII, in lower case.
std::string plain_number(const std::string& s) {
  const std::string text = without_marks(stripped(s, nullptr, true, true));
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_character(text, at);
    out += c >= 0x80              ? ascii_digit(c)
           : c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32)
                                  : static_cast<char>(c);
  }
  return out;
}

// Removes underscores between two digits; false if one is elsewhere.
bool take_out_underscores(std::string& s) {
  const auto is_digit = [&](size_t i) { return i < s.size() && s[i] >= '0' && s[i] <= '9'; };
  for (size_t i = 0; i < s.size(); ++i)
    if (s[i] == '_' && (i == 0 || !is_digit(i - 1) || !is_digit(i + 1))) return false;
  std::erase(s, '_');
  return true;
}

std::optional<double> real_in(const std::string& text) {
  std::string s = plain_number(text);
  if (!take_out_underscores(s)) return {};
  const bool signed_ = s.starts_with('+') || s.starts_with('-'), negative = s.starts_with('-');
  if (signed_) s.erase(0, 1);
  if (s == "inf" || s == "infinity") return negative ? -INFINITY : INFINITY;
  if (s == "nan") return NAN;
  if (s.empty() || (s[0] != '.' && (s[0] < '0' || s[0] > '9'))) return {};
  double d = 0;
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), d);
  if (end != s.data() + s.size() || error == std::errc::invalid_argument) return {};
  if (error == std::errc::result_out_of_range) d = std::strtod(s.c_str(), nullptr);
  return negative ? -d : d;
}

int digit_in(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'z' ? c - 87 : 99; }

// After the sign: removes the prefix of a base, which sets the base if it is 0.
bool take_prefix(std::string& s, int64_t& base) {
  const char letter = s.size() > 1 && s[0] == '0' ? s[1] : '\0';
  const int64_t named = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
  if (named != 0 && (base == named || base == 0)) {
    base = named;
    s.erase(0, s.size() > 2 && s[2] == '_' ? 3 : 2);
    return true;
  }
  if (base != 0) return true;
  base = 10;  // a number that starts with 0 must then be 0
  return !s.starts_with('0') || s.find_first_not_of("0_") == std::string::npos;
}

// int(text, base); empty where Python raises a ValueError.
std::optional<Value> integer_in(const std::string& text, int64_t base) {
  if (base != 0 && (base < 2 || base > 36)) return {};
  std::string s = plain_number(text);
  const bool negative = s.starts_with('-');
  if (negative || s.starts_with('+')) s.erase(0, 1);
  if (!take_prefix(s, base)) return {};
  std::string digits;
  int64_t out = 0;
  bool overflow = false, underscore = true;
  for (const char c : s) {
    if (c == '_' && underscore) return {};
    underscore = c == '_';
    if (underscore) continue;
    if (digit_in(c) >= base) return {};
    digits += c;
    overflow = overflow || __builtin_mul_overflow(out, base, &out) ||
               __builtin_sub_overflow(out, int64_t{digit_in(c)}, &out);
  }
  if (underscore) return {};  // at the end, or without digits
  overflow = overflow || (!negative && out == INT64_MIN);
  if (!overflow) return Value(negative ? out : -out);
  if (base != 10) fail("a number has more than 64 bits");
  digits.erase(0, digits.find_first_not_of('0'));
  return Value(
      LongInteger{std::make_shared<const std::string>(concat(negative ? "-" : "", digits))});
}

[[noreturn]] void fail_undefined(const Value& v) {
  fail(concat("\"", v.undefined_name(), "\" is undefined, so it is not a number"));
}

}  // namespace

// int(value, base), else int(float(value)), else the default, of any type.
Value int_filter(Renderer&, const Value& v, const Arguments& a) {
  const Value* given = a.find(0, "default");
  const Value* base = a.find(1, "base");
  Value fallback = given != nullptr ? *given : Value(int64_t{0});
  if (v.is_undefined()) fail_undefined(v);
  int64_t i = 0, of = 10;
  if (v.long_integer()) return v;
  if (v.to_integer(i)) return i;
  double d = 0;
  if (const std::string* s = v.string()) {
    if (base == nullptr || base->to_integer(of))
      if (const auto found = integer_in(*s, of)) return *found;
    const auto real = real_in(*s);
    if (!real || !std::isfinite(*real)) return fallback;
    d = *real;
  } else if (!v.to_real(d)) {
    return fallback;
  }
  if (std::isnan(d)) return fallback;
  if (std::fabs(d) >= 9.2e18) fail("a number has more than 64 bits");
  return static_cast<int64_t>(d);
}

Value float_filter(Renderer&, const Value& v, const Arguments& a) {
  const Value* given = a.find(0, "default");
  double d = 0;
  if (v.is_undefined()) fail_undefined(v);
  if (v.to_real(d)) return d;
  if (v.string())
    if (const auto real = real_in(*v.string())) return *real;
  return given != nullptr ? *given : Value(0.0);
}

}  // namespace trireme::jinja
