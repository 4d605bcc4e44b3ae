#include "serving/structured/number_schema.h"

#include <algorithm>
#include <optional>

namespace trireme {
namespace {

using Node = Grammar::Node;

constexpr size_t kMaxFactorStates = 1000;  // multiplied by up to 15 digits
constexpr int64_t kMaxListedMultiples = 256;
constexpr int64_t kExactDigits = 15;

std::string bound_of(const Schema& s, const char* name, const std::string& path) {
  if (!s.contains(name)) return "";
  if (!s[name].is_number()) fail_keyword(path, name, "must be a number");
  return s[name].dump();
}

// Literals of the multiples between integer bounds; nullopt: more than kMaxListedMultiples.
std::optional<Node> listed_multiples(Grammar& g, const NumberBounds& bounds,
                                     const std::vector<Factor>& factors) {
  const auto [low, high] = integer_range(bounds);
  const int64_t step = std::ranges::max(factors, {}, &Factor::numerator).numerator;
  int64_t first = low - low % step;
  if (first < low) first += step;
  if (first <= high && (high - first) / step >= kMaxListedMultiples) return {};
  std::vector<Node> ways;
  for (int64_t n = first; n <= high; n += step)
    if (std::ranges::all_of(factors, [&](const Factor& f) { return n % f.numerator == 0; }))
      ways.push_back(g.literal(std::to_string(n)));
  return g.choice(std::move(ways));
}

// Adds missing bounds of kExactDigits digits, unless the other bound is already beyond them.
void bound_digits(NumberBounds& bounds, const std::vector<Factor>& factors) {
  const int decimals = std::ranges::max(factors, {}, &Factor::decimals).decimals;
  const std::string power =
      "1" + std::string(static_cast<size_t>(std::max<int64_t>(kExactDigits - decimals, 1)), '0');
  const auto is_within = [&](const std::string& bound, double sign) {
    return bound.empty() || sign * std::stod(bound) < std::stod(power);
  };
  const bool bounds_max = bounds.most.empty() && is_within(bounds.least, 1);
  if (bounds.least.empty() && is_within(bounds.most, -1))
    bounds.least = concat("-", power), bounds.min_excluded = true;
  if (bounds_max) bounds.most = power, bounds.max_excluded = true;
}

Node multiples_grammar(JsonGrammar& json, NumberBounds bounds, const std::vector<Factor>& factors,
                       bool is_integer, const std::string& path) {
  Grammar& g = json.grammar();
  bound_digits(bounds, factors);
  if (is_integer)
    if (const auto listed = listed_multiples(g, bounds, factors)) return g.named(*listed);
  std::vector<FiniteAutomaton> automata;
  size_t states = 1;
  for (const Factor& factor : factors) {
    const auto automaton = multiples_automaton(factor, kMaxFactorStates);
    if (automaton) states *= automaton->size();
    if (!automaton || states > kMaxFactorStates)
      fail_keyword(path, "multipleOf",
                   concat("is not supported with a factor whose automaton has more than ",
                          kMaxFactorStates, " states, unless at most ", kMaxListedMultiples,
                          " integers are left between minimum and maximum"));
    automata.push_back(*automaton);
  }
  g.budget().note_count(static_cast<int64_t>(states) * kExactDigits,
                        concat("schema ", path, ": \"multipleOf\""));
  const Node body = is_integer ? bounded_integer(g, bounds) : bounded_number(g, bounds);
  return g.named_all({body}, -1, std::move(automata));
}

}  // namespace

NumberBounds number_bounds(const Schema& s, const std::string& path) {
  NumberBounds b{.least = bound_of(s, "minimum", path), .most = bound_of(s, "maximum", path)};
  const std::string above = bound_of(s, "exclusiveMinimum", path);
  const std::string below = bound_of(s, "exclusiveMaximum", path);
  if (!above.empty() && (b.least.empty() || s["exclusiveMinimum"] >= s["minimum"]))
    b.least = above, b.min_excluded = true;
  if (!below.empty() && (b.most.empty() || s["exclusiveMaximum"] <= s["maximum"]))
    b.most = below, b.max_excluded = true;
  return b;
}

std::vector<Factor> factors_of(const Schema& s, const std::string& path) {
  std::vector<Factor> factors;
  if (!s.contains("multipleOf")) return factors;
  const Schema& given = s["multipleOf"];
  for (const Schema& one : given.is_array() ? given : Schema::array({given})) {
    const std::optional<Factor> factor = read_factor(one.dump());
    if (!factor) fail_keyword(path, "multipleOf", "must be a number above 0, of at most 17 digits");
    factors.push_back(*factor);
  }
  return factors;
}

Node number_schema_grammar(JsonGrammar& json, const Schema& s, const std::string& type,
                           const std::string& path) {
  const bool is_integer = type == "integer";
  const NumberBounds bounds = number_bounds(s, path);
  std::vector<Factor> factors = factors_of(s, path);
  if (is_integer) {
    for (Factor& factor : factors) factor = integer_factor(factor);
    std::erase_if(factors, [](const Factor& factor) { return factor.numerator == 1; });
  }
  if (factors.empty()) return is_integer ? json.integer(bounds) : json.number(bounds);
  Schema key = {type, bounds.least, bounds.min_excluded, bounds.most, bounds.max_excluded};
  for (const Factor& factor : factors) {
    key.push_back(factor.numerator);
    key.push_back(factor.decimals);
  }
  return json.shared(key.dump(),
                     [&] { return multiples_grammar(json, bounds, factors, is_integer, path); });
}

}  // namespace trireme
