#include "serving/structured/multiples.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <vector>

namespace trireme {
namespace {

constexpr int64_t kMaxFactorDigits = 17;                    // ten times a remainder is an int64_t
constexpr int64_t kLargePower = 1'000'000'000'000'000'000;  // above every remainder

// digits * 10^exponent, without leading and trailing zeros; zero has no digits.
struct ScaledDigits {
  std::string digits = {};
  int64_t exponent = 0;
  bool negative = false;
};

ScaledDigits read_scaled(const std::string& text) {
  ScaledDigits out;
  bool is_fraction = false;
  size_t at = 0;
  for (; at < text.size() && text[at] != 'e' && text[at] != 'E'; ++at) {
    if (text[at] == '-') out.negative = true;
    if (text[at] == '.') is_fraction = true;
    if (text[at] < '0' || text[at] > '9') continue;
    out.digits += text[at];
    if (is_fraction) --out.exponent;
  }
  if (at < text.size()) {
    int64_t exponent = 0;
    const size_t begin = at + (at + 1 < text.size() && text[at + 1] == '+' ? 2 : 1);
    std::from_chars(text.data() + begin, text.data() + text.size(), exponent);
    out.exponent += exponent;
  }
  out.digits.erase(0, std::min(out.digits.find_first_not_of('0'), out.digits.size()));
  for (; !out.digits.empty() && out.digits.back() == '0'; ++out.exponent) out.digits.pop_back();
  return out;
}

int64_t times_power(int64_t remainder, int64_t exponent, int64_t modulus) {
  for (; exponent > 0 && remainder != 0; --exponent) remainder = remainder * 10 % modulus;
  return remainder;
}

// Number read so far.
struct DigitsRead {
  int64_t remainder = 0;  // of the number times 10^decimals of the factor
  int decimals = -1;      // digits after the point; -1: no point yet
};

class MultiplesSearch {
 public:
  MultiplesSearch(const Factor& factor, size_t max_states) : f_(factor), max_(max_states) {
    for (odd_ = f_.numerator; odd_ % 2 == 0;) odd_ /= 2;
    while (odd_ % 5 == 0) odd_ /= 5;
    even_ = f_.numerator / odd_;
    unit_.assign(1, 1 % f_.numerator);
    for (int i = 0; i < f_.decimals; ++i) unit_.push_back(unit_.back() * 10 % f_.numerator);
  }

  std::optional<FiniteAutomaton> run() {
    id_of({});
    for (size_t i = 0; i < reached_.size(); ++i) {
      if (reached_.size() > max_) return {};
      expand(i);
    }
    return std::move(states_);
  }

 private:
  // Numbers with equal keys have the same continuations. Before the point, and for a factor without
  // decimals with numerator a d, where a divides a power of ten and d is coprime to ten, the key is
  // the remainder for d and, for each number of further digits, the least value of these for a.
  std::vector<int64_t> key_of(const DigitsRead& read) const {
    if (f_.decimals > 0 || read.decimals >= 0) return {read.decimals, read.remainder};
    std::vector<int64_t> key = {-1, read.remainder % odd_};
    int64_t rest = read.remainder % even_, unit = 1 % even_, power = 1;
    for (; unit != 0; unit = unit * 10 % even_) {
      const int64_t needed = (even_ - rest) % even_;
      key.push_back(needed < power ? needed : -1);
      rest = rest * 10 % even_;
      if (power < kLargePower) power *= 10;
    }
    return key;
  }

  int32_t id_of(const DigitsRead& read) {
    const auto [at, is_new] = ids_.try_emplace(key_of(read), static_cast<int32_t>(reached_.size()));
    if (is_new) {
      reached_.push_back(read);
      states_.emplace_back().final = read.remainder == 0;
    }
    return at->second;
  }

  DigitsRead after(const DigitsRead& read, int64_t digit) const {
    const bool is_whole = read.decimals < 0;
    const auto place = static_cast<size_t>(f_.decimals - std::max(read.decimals + 1, 0));
    const int64_t value = (is_whole ? read.remainder * 10 : read.remainder) + digit * unit_[place];
    return {value % f_.numerator, is_whole ? -1 : read.decimals + 1};
  }

  void expand(size_t number) {
    const DigitsRead read = reached_[number];
    std::vector<AutomatonState::Edge> edges;
    const auto add = [&](char byte, int32_t target) {
      const auto b = static_cast<uint8_t>(byte);
      if (!edges.empty() && edges.back().target == target && edges.back().last + 1 == b)
        edges.back().last = b;
      else
        edges.push_back({b, b, false, target});
    };
    if (number == 0) add('-', 0);
    if (read.decimals < 0 && (f_.decimals > 0 || states_[number].final))
      add('.', id_of({read.remainder, 0}));
    if (read.decimals == f_.decimals) add('0', static_cast<int32_t>(number));  // a multiple
    for (char c = '0'; c <= '9' && read.decimals < f_.decimals; ++c)
      if (const DigitsRead next = after(read, c - '0');
          next.decimals < f_.decimals || next.remainder == 0)
        add(c, id_of(next));
    states_[number].edges = std::move(edges);
  }

  const Factor f_;
  const size_t max_;
  int64_t odd_ = 1, even_ = 1;
  std::vector<int64_t> unit_;  // 10^i modulo the numerator
  std::map<std::vector<int64_t>, int32_t> ids_;
  std::vector<DigitsRead> reached_;
  FiniteAutomaton states_;
};

}  // namespace

std::optional<Factor> read_factor(const std::string& text) {
  ScaledDigits read = read_scaled(text);
  const int64_t size = std::ssize(read.digits);
  if (read.negative || size == 0 || size + std::max<int64_t>(read.exponent, 0) > kMaxFactorDigits ||
      read.exponent < -kMaxFactorDigits)
    return {};
  if (read.exponent > 0) read.digits.append(static_cast<size_t>(read.exponent), '0');
  return Factor{.numerator = std::stoll(read.digits),
                .decimals = static_cast<int>(std::max<int64_t>(-read.exponent, 0))};
}

Factor integer_factor(const Factor& factor) {
  int64_t numerator = factor.numerator;
  for (const int64_t prime : {2, 5})
    for (int i = 0; i < factor.decimals && numerator % prime == 0; ++i) numerator /= prime;
  return {.numerator = numerator, .decimals = 0};
}

bool is_multiple(const std::string& number, const Factor& factor) {
  const ScaledDigits read = read_scaled(number);
  if (read.digits.empty()) return true;
  const int64_t exponent = read.exponent + factor.decimals;
  if (exponent < 0) return false;
  int64_t remainder = 0;
  for (const char c : read.digits) remainder = (remainder * 10 + (c - '0')) % factor.numerator;
  return times_power(remainder, exponent, factor.numerator) == 0;
}

std::optional<FiniteAutomaton> multiples_automaton(const Factor& factor, size_t max_states) {
  return MultiplesSearch(factor, max_states).run();
}

}  // namespace trireme
