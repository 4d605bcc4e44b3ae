#include "engine/text/jinja/format.h"

#include <cmath>
#include <cstdio>

#include "engine/core/error.h"
#include "engine/text/jinja/text_tools.h"
#include "engine/text/unicode.h"

namespace trireme::jinja {
namespace {

constexpr int64_t kMaxPrecision = 400;
constexpr int64_t kNone = -1;

bool is_decimal_digit(char c) { return c >= '0' && c <= '9'; }

// Format of one value.
struct Spec {
  std::string fill = " ";
  char align = '\0';  // '<', '>', '^', '=': none
  char sign = '-';
  bool alternative = false;  // '#'
  char grouping = '\0';      // ',' or '_'
  int64_t width = 0, precision = kNone;
  char type = '\0';
};

// Digits at `at`, which is moved past them; kNone if there are none.
int64_t number_at(const std::string& s, size_t& at) {
  if (at >= s.size() || !is_decimal_digit(s[at])) return kNone;
  int64_t n = 0;
  for (; at < s.size() && is_decimal_digit(s[at]); ++at) {
    n = 10 * n + (s[at] - '0');
    if (n > INT32_MAX) fail("a format has a number that is too large");
  }
  return n;
}

// Sign and digits of a number, separate so that zeros can be inserted between them.
struct Digits {
  std::string sign, text;
};

Digits with_sign(bool negative, char sign, std::string text) {
  return {negative ? "-" : sign == '-' ? "" : std::string(1, sign), std::move(text)};
}

Digits integer_digits(int64_t i, const Spec& spec) {
  uint64_t rest = i < 0 ? 0 - static_cast<uint64_t>(i) : static_cast<uint64_t>(i);
  const bool large = spec.type == 'X', octal = spec.type == 'o', binary = spec.type == 'b';
  const uint64_t base = spec.type == 'x' || large ? 16 : octal ? 8 : binary ? 2 : 10;
  const char* const names = large ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string digits;
  do {
    digits.insert(digits.begin(), names[rest % base]);
    rest /= base;
  } while (rest > 0);
  const auto min_digits = static_cast<size_t>(std::max<int64_t>(0, spec.precision));
  if (digits.size() < min_digits) digits.insert(0, min_digits - digits.size(), '0');
  Digits out = with_sign(i < 0, spec.sign, std::move(digits));
  if (spec.alternative && base != 10)
    out.sign += base == 8 ? "0o" : base == 2 ? "0b" : large ? "0X" : "0x";
  return out;
}

Digits real_digits(double d, const Spec& spec) {
  const bool large = spec.type == 'E' || spec.type == 'F' || spec.type == 'G';
  if (!std::isfinite(d))
    return with_sign(std::signbit(d) && !std::isnan(d), spec.sign,
                     std::isnan(d) ? (large ? "NAN" : "nan") : (large ? "INF" : "inf"));
  const char form[] = {'%', '.', '*', spec.type, '\0'};
  const char alternative[] = {'%', '#', '.', '*', spec.type, '\0'};
  char buffer[1024];
  const int precision = static_cast<int>(spec.precision == kNone ? 6 : spec.precision);
  const int n = std::snprintf(buffer, sizeof buffer, spec.alternative ? alternative : form,
                              precision, std::fabs(d));
  return with_sign(std::signbit(d), spec.sign, std::string(buffer, static_cast<size_t>(n)));
}

std::string grouped(const std::string& digits, char separator, size_t each) {
  const size_t end = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  std::string out;
  for (size_t i = 0; i < end; ++i) {
    if (i > 0 && (end - i) % each == 0) out += separator;
    out += digits[i];
  }
  return out + digits.substr(end);
}

std::string aligned(Renderer& r, const Spec& spec, const Digits& digits, char usual) {
  const char align = spec.align != '\0' ? spec.align : usual;
  if (align != '=') return padded(r, digits.sign + digits.text, spec.width, spec.fill, align);
  return digits.sign + padded(r, digits.text, spec.width - std::ssize(digits.sign), spec.fill, '>');
}

std::string cut(const std::string& text, int64_t characters) {
  return characters == kNone ? text : slice_of(text, INT64_MIN, characters, 1);
}

void check_precision(const Spec& spec) {
  if (spec.precision > kMaxPrecision)
    fail(concat("a format has a precision of more than ", kMaxPrecision));
}

class PercentFormat {
 public:
  PercentFormat(Renderer& r, const std::string& format, const Value& values)
      : r_(r), s_(format), values_(values) {
    if (values.tuple()) list_ = *values.list();
    // As in Python, a value that can be indexed by name may stay unused.
    may_be_left_ = !values.tuple() && (values.list() || values.dict() || values.is_undefined());
    if (!values.tuple()) list_ = {values};
  }

  std::string write() {
    std::string out;
    while (at_ < s_.size()) {
      const size_t sign = std::min(s_.find('%', at_), s_.size());
      out.append(s_, at_, sign - at_);
      at_ = sign;
      if (at_ < s_.size()) out += one();
      spend(1);
      r_.check_size(std::ssize(out));
    }
    if (!may_be_left_ && next_ < list_.size()) fail("a format has fewer placeholders than values");
    return out;
  }

 private:
  char here() const {
    if (at_ >= s_.size()) fail("a format ends within a placeholder");
    return s_[at_];
  }
  const Value& next() {
    if (next_ >= list_.size()) fail("a format has more placeholders than values");
    return list_[next_++];
  }
  int64_t number_or_star() {
    if (here() != '*') return number_at(s_, at_);
    ++at_;
    int64_t n = 0;
    if (!next().to_integer(n)) fail("* in a format expects a whole number");
    if (n > INT32_MAX || n < -INT32_MAX) fail("a format has a number that is too large");
    return n;
  }

  std::string one() {
    ++at_;
    const Value* named = here() == '(' ? member() : nullptr;
    Spec spec;
    bool zeros = false, left = false;
    for (; std::string_view("-+ #0").find(here()) != std::string_view::npos; ++at_) {
      left |= s_[at_] == '-';
      zeros |= s_[at_] == '0';
      spec.alternative |= s_[at_] == '#';
      if (s_[at_] == '+' || (s_[at_] == ' ' && spec.sign != '+')) spec.sign = s_[at_];
    }
    const int64_t width = number_or_star();
    left |= width < kNone;
    spec.width = width == kNone ? 0 : std::abs(width);
    if (here() == '.') {
      ++at_;
      spec.precision = std::max<int64_t>(0, number_or_star());
    }
    if (std::string_view("hlL").find(here()) != std::string_view::npos) ++at_;
    spec.type = here();
    ++at_;
    spec.align = left ? '<' : zeros ? '=' : '>';
    if (zeros && !left) spec.fill = "0";
    if (spec.type == '%') return "%";
    return written(named != nullptr ? *named : next(), spec);
  }

  // Value of %(name).
  const Value* member() {
    size_t end = at_ + 1;
    for (int open = 1; end < s_.size(); ++end) {
      open += s_[end] == '(' ? 1 : s_[end] == ')' ? -1 : 0;
      if (open == 0) break;
    }
    if (end == s_.size()) fail("a format ends within a name");
    const std::string name = s_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    if (values_.dict() == nullptr) fail("a format with names expects a dict");
    const Value* found = values_.dict()->find(name);
    if (found == nullptr) fail(concat("a format has no value for \"", name, "\""));
    return found;
  }

  std::string written(const Value& v, Spec spec) {
    switch (spec.type) {
      case 's':
      case 'r':
        if (spec.align == '=') spec.align = '>', spec.fill = " ";
        return padded(r_, cut(spec.type == 's' ? text_of(v) : repr_of(v), spec.precision),
                      spec.width, spec.fill, spec.align);
      case 'c': return character(v, spec);
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o': return integer(v, spec);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G': {
        double d = 0;
        if (!v.to_real(d)) fail(concat("%", spec.type, " expects a number, not a ", type_name(v)));
        check_precision(spec);
        return aligned(r_, spec, real_digits(d, spec), '>');
      }
      default: fail(concat("the format %", spec.type, " is not supported"));
    }
  }

  std::string character(const Value& v, const Spec& spec) {
    if (v.string() == nullptr || length_of(*v.string()) != 1) fail("%c expects one character");
    return padded(r_, *v.string(), spec.width, " ", spec.align == '<' ? '<' : '>');
  }

  std::string integer(const Value& v, const Spec& spec) {
    int64_t i = 0;
    const bool decimal = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
    if (decimal && v.real() && std::fabs(*v.real()) < 9e18)
      i = static_cast<int64_t>(*v.real());
    else if (!v.to_integer(i))
      fail(concat("%", spec.type, " expects a whole number, not a ", type_name(v)));
    check_precision(spec);
    return aligned(r_, spec, integer_digits(i, spec), '>');
  }

  Renderer& r_;
  const std::string& s_;
  const Value& values_;
  List list_;
  bool may_be_left_ = false;
  size_t at_ = 0, next_ = 0;
};

// [[fill]align][sign][#][0][width][grouping][.precision][type]
Spec read_spec(const std::string& s) {
  Spec spec;
  size_t at = 0;
  const auto is_align = [&](size_t i) {
    return i < s.size() && std::string_view("<>=^").find(s[i]) != std::string_view::npos;
  };
  const size_t first = s.empty() ? 0 : std::min(s.size(), character_bytes(s[0]));
  if (first > 0 && is_align(first)) {
    spec.fill = s.substr(0, first);
    spec.align = s[first];
    at = first + 1;
  } else if (is_align(0)) {
    spec.align = s[at++];
  }
  if (at < s.size() && (s[at] == '+' || s[at] == '-' || s[at] == ' ')) spec.sign = s[at++];
  if (at < s.size() && s[at] == '#') spec.alternative = true, ++at;
  if (at < s.size() && s[at] == '0') {
    ++at;
    if (spec.align == '\0') spec.fill = "0", spec.align = '0';  // by type of value
  }
  spec.width = std::max<int64_t>(0, number_at(s, at));
  if (at < s.size() && (s[at] == ',' || s[at] == '_')) spec.grouping = s[at++];
  if (at < s.size() && s[at] == '.') {
    spec.precision = number_at(s, ++at);
    if (spec.precision == kNone) fail(concat("the format \"", s, "\" has no precision"));
  }
  if (at < s.size()) spec.type = s[at++];
  if (at != s.size()) fail(concat("the format \"", s.substr(0, 40), "\" is invalid"));
  if (spec.grouping != '\0' && spec.align == '0' && spec.width > 0)
    fail("a format with zeros before grouped digits is not supported");
  check_precision(spec);
  return spec;
}

std::string real_by_spec(Renderer& r, double d, Spec spec) {
  if (std::string_view("eEfFgG%").find(spec.type) == std::string_view::npos && spec.type != '\0')
    fail(concat("a number cannot be written as \"", spec.type, "\""));
  const bool percent = spec.type == '%', plain = spec.type == '\0';
  if (percent) spec.type = 'f', d *= 100;
  Digits digits;
  if (plain && spec.precision == kNone) {
    digits = with_sign(std::signbit(d) && !std::isnan(d), spec.sign, text_of(Value(std::fabs(d))));
  } else if (plain) {
    spec.type = 'g';
    digits = real_digits(d, spec);
    if (std::isfinite(d) && digits.text.find_first_of(".e") == std::string::npos)
      digits.text += ".0";
  } else {
    digits = real_digits(d, spec);
  }
  if (spec.grouping != '\0') digits.text = grouped(digits.text, spec.grouping, 3);
  if (percent) digits.text += '%';
  return aligned(r, spec, digits, '>');
}

std::string by_spec(Renderer& r, const Value& v, const std::string& text) {
  if (text.empty()) return text_of(v);
  Spec spec = read_spec(text);
  int64_t i = 0;
  if (const std::string* s = v.string()) {
    if ((spec.type != '\0' && spec.type != 's') || spec.align == '=' || spec.sign != '-' ||
        spec.grouping != '\0')
      fail(concat("a string cannot be written as \"", text, "\""));
    if (spec.align == '0') spec.align = '<';
    return padded(r, cut(*s, spec.precision), spec.width, spec.fill,
                  spec.align != '\0' ? spec.align : '<');
  }
  if (spec.align == '0') spec.align = '=';
  if (v.real()) return real_by_spec(r, *v.real(), spec);
  if (!v.to_integer(i)) fail(concat("a ", type_name(v), " cannot be written as \"", text, "\""));
  if (spec.type != '\0' && std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos)
    return real_by_spec(r, static_cast<double>(i), spec);
  if ((spec.type != '\0' && std::string_view("bdoxX").find(spec.type) == std::string_view::npos) ||
      spec.precision != kNone)
    fail(concat("a whole number cannot be written as \"", text, "\""));
  Digits digits = integer_digits(i, spec);
  const bool decimal = spec.type == '\0' || spec.type == 'd';
  if (spec.grouping != '\0') {
    if (!decimal && spec.grouping == ',') fail("only decimal digits are grouped by commas");
    digits.text = grouped(digits.text, spec.grouping, decimal ? 3 : 4);
  }
  return aligned(r, spec, digits, '>');
}

class BraceFormat {
 public:
  BraceFormat(Renderer& r, const Arguments& arguments) : r_(r), a_(arguments) {}

  // Expands fields; nested ones are in the format of a field.
  std::string write(const std::string& s, int depth) {
    std::string out;
    for (size_t at = 0; at < s.size();) {
      const size_t brace = std::min(s.find_first_of("{}", at), s.size());
      out.append(s, at, brace - at);
      at = brace;
      if (at == s.size()) break;
      spend(1);
      if (at + 1 < s.size() && s[at + 1] == s[at]) {
        out += s[at];
        at += 2;
      } else if (s[at] == '}') {
        fail("a format has a \"}\" without a \"{\"");
      } else {
        const size_t begin = ++at;
        for (int open = 1; at < s.size(); ++at) {
          open += s[at] == '{' ? 1 : s[at] == '}' ? -1 : 0;
          if (open == 0) break;
        }
        if (at >= s.size()) fail("a format has a \"{\" that is not closed");
        out += place(s.substr(begin, at - begin), depth);
        ++at;
      }
      r_.check_size(std::ssize(out));
    }
    return out;
  }

 private:
  std::string place(const std::string& s, int depth) {
    if (depth > 1) fail("placeholders of a format are nested too deeply");
    size_t end = 0;  // end of the name: "!" and ":" may occur in brackets
    for (bool inside = false; end < s.size(); ++end) {
      inside = s[end] == '[' || (inside && s[end] != ']');
      if (!inside && (s[end] == '!' || s[end] == ':')) break;
    }
    Value v = field(s.substr(0, end));
    if (end < s.size() && s[end] == '!') {
      const char kind = end + 1 < s.size() ? s[end + 1] : '\0';
      if (kind != 's' && kind != 'r')
        fail(concat("the conversion \"!", kind, "\" is not supported"));
      v = kind == 's' ? text_of(v) : repr_of(v);
      end += 2;
      if (end < s.size() && s[end] != ':') fail("a format has no \":\" after a conversion");
    }
    return by_spec(r_, v, end < s.size() ? write(s.substr(end + 1), depth + 1) : "");
  }

  // name.member[item]
  Value field(const std::string& s) {
    size_t at = std::min(s.find_first_of(".["), s.size());
    Value v = argument(s.substr(0, at));
    while (at < s.size()) {
      if (v.is_undefined())
        fail(concat("a format uses a member of an undefined value: \"", s, "\""));
      if (s[at] == '.') {
        const size_t end = std::min(s.find_first_of(".[", at + 1), s.size());
        const std::string name = s.substr(at + 1, end - at - 1);
        const Value found = attribute_of(r_, v, name);
        v = found.is_undefined() ? item_of(v, name) : found;
        at = end;
      } else if (s[at] == '[') {
        const size_t end = s.find(']', at);
        if (end == std::string::npos) fail("a format has a \"[\" that is not closed");
        size_t digits = at + 1;
        const int64_t i = number_at(s, digits);
        v = digits == end && i != kNone ? item_of(v, i)
                                        : item_of(v, s.substr(at + 1, end - at - 1));
        at = end + 1;
      } else {
        fail(concat("\"", s, "\" in a format is invalid"));
      }
    }
    return v;
  }

  const Value& argument(const std::string& name) {
    size_t digits = 0;
    const int64_t i = name.empty() ? next_++ : number_at(name, digits);
    if (!name.empty() && (i == kNone || digits != name.size())) {
      const Value* v = a_.find(SIZE_MAX, name);
      if (v == nullptr) fail(concat("a format has no value for \"", name, "\""));
      return *v;
    }
    (name.empty() ? counts_ : is_numbered_) = true;
    if (counts_ && is_numbered_) fail("a format mixes numbered and unnumbered placeholders");
    if (i >= std::ssize(a_.positional)) fail("a format has more placeholders than values");
    return a_.positional[static_cast<size_t>(i)];
  }

  Renderer& r_;
  const Arguments& a_;
  int64_t next_ = 0;
  bool counts_ = false, is_numbered_ = false;
};

}  // namespace

std::string percent_formatted(Renderer& r, const std::string& format, const Value& values) {
  return PercentFormat(r, format, values).write();
}

std::string brace_formatted(Renderer& r, const std::string& format, const Arguments& arguments) {
  return BraceFormat(r, arguments).write(format, 0);
}

}  // namespace trireme::jinja
