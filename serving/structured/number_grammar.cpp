#include "serving/structured/number_grammar.h"

#include <algorithm>
#include <charconv>
#include <tuple>

namespace trireme {
namespace {

using Node = Grammar::Node;

constexpr size_t kMaxDigits = 18, kMaxFraction = 17;
constexpr int64_t kLargest = 999'999'999'999'999'999;
const CharSet kDigits = {{'0', '9'}};

CharSet digits(char first, char last) {
  return {{static_cast<uint32_t>(first), static_cast<uint32_t>(last)}};
}

// Absolute value of a bound without leading and trailing zeros: "012.50" is 12 and 5.
struct Decimal {
  bool negative = false, too_large = false;
  std::string whole, fraction;  // whole: at least "0"; fraction: may be empty
  bool is_zero() const { return whole == "0" && fraction.empty() && !too_large; }
};

// text: a JSON number.
Decimal read_decimal(const std::string& text) {
  Decimal d;
  std::string mantissa;
  int64_t exponent = 0, point = -1;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '-' && i == 0) d.negative = true;
    if (c == '.') point = std::ssize(mantissa);
    if (c >= '0' && c <= '9') mantissa += c;
    if (c != 'e' && c != 'E') continue;
    const size_t begin = i + (i + 1 < text.size() && text[i + 1] == '+' ? 2 : 1);
    std::from_chars(text.data() + begin, text.data() + text.size(), exponent);
    break;
  }
  const bool zero = mantissa.find_first_not_of('0') == std::string::npos;
  const int64_t whole_digits = zero ? 1 : (point < 0 ? std::ssize(mantissa) : point) + exponent;
  if (!zero && whole_digits < -40)
    fail_input("the bound ", text, " has more than ", kMaxFraction,
               " digits after the decimal point");
  if (whole_digits > 40) {
    d.too_large = true;
    d.whole = std::string(kMaxDigits, '9');
    return d;
  }
  if (whole_digits < 0) mantissa.insert(0, static_cast<size_t>(-whole_digits), '0');
  const auto split = static_cast<size_t>(std::max<int64_t>(whole_digits, 0));
  if (mantissa.size() < split) mantissa.resize(split, '0');
  d.whole = mantissa.substr(0, split);
  d.fraction = mantissa.substr(split);
  d.whole.erase(0, std::min(d.whole.find_first_not_of('0'), d.whole.size()));
  d.fraction.erase(d.fraction.find_last_not_of('0') + 1);
  if (d.fraction.size() > kMaxFraction)
    fail_input("the bound ", text, " has more than ", kMaxFraction,
               " digits after the decimal point");
  d.too_large = d.whole.size() > kMaxDigits;
  if (d.too_large) d.whole = std::string(kMaxDigits, '9'), d.fraction.clear();
  if (d.whole.empty()) d.whole = "0";
  return d;
}

// --- integers ---

// Digits from place i of numbers as long as `low` and `high`; at_low, at_high: the digits before
// are those of the bound, which must not be passed.
Node of_length(Grammar& g, const std::string& low, const std::string& high, size_t i, bool at_low,
               bool at_high) {
  const size_t left = low.size() - i;
  if (left == 0) return g.sequence({});
  if (!at_low && !at_high)
    return g.repeat(g.chars(kDigits), static_cast<int64_t>(left), static_cast<int64_t>(left));
  const char least = at_low ? low[i] : '0', most = at_high ? high[i] : '9';
  const auto behind = [&](char c) {
    return g.sequence(
        {g.literal(std::string(1, c)),
         of_length(g, low, high, i + 1, at_low && c == low[i], at_high && c == high[i])});
  };
  if (least == most) return behind(least);
  std::vector<Node> ways;
  const char first = static_cast<char>(least + (at_low ? 1 : 0));
  const char last = static_cast<char>(most - (at_high ? 1 : 0));
  if (at_low) ways.push_back(behind(least));
  if (first <= last)
    ways.push_back(
        g.sequence({g.chars(digits(first, last)), of_length(g, low, high, i + 1, false, false)}));
  if (at_high) ways.push_back(behind(most));
  return g.choice(std::move(ways));
}

Node all_of_length(Grammar& g, int64_t length) {
  if (length == 1) return g.chars(kDigits);
  return g.sequence(
      {g.chars(digits('1', '9')), g.repeat(g.chars(kDigits), length - 1, length - 1)});
}

// Requires 0 <= low <= high.
Node natural_range(Grammar& g, int64_t low, int64_t high) {
  std::vector<Node> ways;
  for (int64_t begin = 0, end = 9;; begin = end + 1, end = end * 10 + 9) {
    const int64_t least = std::max(low, begin), most = std::min(high, end);
    if (least == begin && most == end)  // a full range of a length needs few states
      ways.push_back(all_of_length(g, std::ssize(std::to_string(end))));
    else if (least <= most)
      ways.push_back(of_length(g, std::to_string(least), std::to_string(most), 0, true, true));
    if (high <= end) break;  // the next range may overflow
  }
  return g.choice(std::move(ways));
}

int64_t integer_bound(const std::string& text, bool excluded, bool is_least) {
  if (text.empty()) return is_least ? -kLargest : kLargest;
  const Decimal d = read_decimal(text);
  int64_t value = std::stoll(d.whole);
  if (d.too_large) {
    if (d.negative != is_least)
      fail_input("the bound ", text, " leaves no integers of up to ", kMaxDigits, " digits");
    return is_least ? -kLargest : kLargest;
  }
  if (d.negative) value = -value;
  const bool exact = d.fraction.empty();
  if (!exact && d.negative && !is_least) return value - 1;
  if (!exact && !d.negative && is_least) return value + 1;
  if (!exact || !excluded) return value;
  return is_least ? value + 1 : value - 1;
}

// --- fractions ---

struct Fraction {
  std::string low, high;  // digits
  bool has_low = false, has_high = false, low_excluded = false, high_excluded = false;
};

// Digits after the first i of a fraction; at_low, at_high: those are the digits of the bound.
Node more_digits(Grammar& g, const Fraction& f, size_t i, bool at_low, bool at_high) {
  const auto most = static_cast<int64_t>(kMaxFraction - i);
  if (!at_low && !at_high) return g.repeat(g.chars(kDigits), i == 0 ? 1 : 0, most);
  std::vector<Node> ways;
  const bool low_reached = !at_low || (i >= f.low.size() && !f.low_excluded);
  const bool high_kept = !at_high || i < f.high.size() || !f.high_excluded;
  if (i > 0 && low_reached && high_kept) ways.push_back(g.sequence({}));
  if (most > 0) {
    const auto digit = [&](const std::string& of) { return i < of.size() ? of[i] : '0'; };
    const char least = at_low ? digit(f.low) : '0', last = at_high ? digit(f.high) : '9';
    for (char c = least; c <= last; ++c) {
      const bool low = at_low && c == least, high = at_high && c == last;
      ways.push_back(
          g.sequence({g.literal(std::string(1, c)), more_digits(g, f, i + 1, low, high)}));
    }
  }
  return g.choice(std::move(ways));
}

// Fraction after a whole part: nothing, or a point and digits.
Node fraction(Grammar& g, const Fraction& f) {
  std::vector<Node> ways = {
      g.sequence({g.literal("."), more_digits(g, f, 0, f.has_low, f.has_high)})};
  const bool zero = !(f.has_low && (!f.low.empty() || f.low_excluded)) &&
                    !(f.has_high && f.high.empty() && f.high_excluded);
  if (zero) ways.push_back(g.sequence({}));
  return g.choice(std::move(ways));
}

// Unsigned numbers from low to high.
Node magnitude(Grammar& g, const Decimal& low, bool low_excluded, const Decimal& high,
               bool high_excluded) {
  const int64_t first = std::stoll(low.whole), last = std::stoll(high.whole);
  const Fraction from{
      .low = low.fraction, .high = {}, .has_low = true, .low_excluded = low_excluded};
  const Fraction to{
      .low = {}, .high = high.fraction, .has_high = true, .high_excluded = high_excluded};
  std::vector<Node> ways;
  if (first == last) {
    Fraction both = from;
    both.high = to.high;
    both.has_high = true;
    both.high_excluded = high_excluded;
    // Empty range.
    if (both.low > both.high) return g.choice({});
    return g.sequence({g.literal(low.whole), fraction(g, both)});
  }
  if (first > last) return g.choice({});
  ways.push_back(g.sequence({g.literal(low.whole), fraction(g, from)}));
  if (first + 1 < last)
    ways.push_back(g.sequence({natural_range(g, first + 1, last - 1), fraction(g, {})}));
  ways.push_back(g.sequence({g.literal(high.whole), fraction(g, to)}));
  return g.choice(std::move(ways));
}

}  // namespace

IntegerRange integer_range(const NumberBounds& bounds) {
  return {.least = integer_bound(bounds.least, bounds.min_excluded, true),
          .most = integer_bound(bounds.most, bounds.max_excluded, false)};
}

Node bounded_integer(Grammar& g, const NumberBounds& bounds) {
  const auto [low, high] = integer_range(bounds);
  if (low > high)
    fail_input("no integer is between the bounds ", bounds.least, " and ", bounds.most);
  std::vector<Node> ways;
  if (high >= 0) ways.push_back(natural_range(g, std::max<int64_t>(low, 0), high));
  if (low < 0)
    ways.push_back(
        g.sequence({g.literal("-"), natural_range(g, std::max<int64_t>(-high, 1), -low)}));
  return g.choice(std::move(ways));
}

Node bounded_number(Grammar& g, const NumberBounds& bounds) {
  const Decimal largest{.negative = false, .whole = std::string(kMaxDigits, '9'), .fraction = {}};
  Decimal least = bounds.least.empty() ? largest : read_decimal(bounds.least);
  Decimal most = bounds.most.empty() ? largest : read_decimal(bounds.most);
  if (bounds.least.empty()) least.negative = true;
  for (const auto& [bound, text, beyond] :
       {std::tuple(&least, &bounds.least, !least.negative), {&most, &bounds.most, most.negative}})
    if (bound->too_large && beyond)
      fail_input("the bound ", *text, " leaves no numbers of up to ", kMaxDigits,
                 " digits before the point");
  const Decimal zero{.whole = "0", .fraction = {}};
  std::vector<Node> ways;
  if (!most.negative || most.is_zero()) {
    const bool from_zero = least.negative || least.is_zero();
    const bool zero_excluded = least.is_zero() && bounds.min_excluded;
    ways.push_back(magnitude(g, from_zero ? zero : least,
                             from_zero ? zero_excluded : bounds.min_excluded, most,
                             bounds.max_excluded));
  }
  if (least.negative && !least.is_zero()) {
    const bool to_zero = !most.negative || most.is_zero();
    const bool zero_excluded = most.is_zero() && bounds.max_excluded;
    ways.push_back(
        g.sequence({g.literal("-"), magnitude(g, to_zero ? zero : most,
                                              to_zero ? zero_excluded : bounds.max_excluded, least,
                                              bounds.min_excluded)}));
  }
  return g.choice(std::move(ways));
}

}  // namespace trireme
