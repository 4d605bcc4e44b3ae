#include "parallel/outer/adasum.h"

#include <cmath>

#include "engine/core/error.h"

namespace trireme {
namespace {

constexpr int kCoefficientBits = 30;
constexpr double kCancelled = 1e-14;   // of the terms of a squared norm: their rounding error
constexpr double kNegligible = 1e-40;  // ratio of squared norms whose quotient float32 cannot hold

using Coefficients = std::vector<double>;

struct Dot {
  double value = 0, magnitude = 0;  // sums of the terms, and of their absolute values
};

Dot dot(std::span<const double> gram, const Coefficients& a, const Coefficients& b) {
  Dot sum;
  for (size_t s = 0; s < a.size(); ++s)
    for (size_t t = 0; t < b.size(); ++t) {
      if (a[s] == 0 || b[t] == 0) continue;
      const double term = a[s] * b[t] * gram[s * b.size() + t];
      sum.value += term;
      sum.magnitude += std::abs(term);
    }
  return sum;
}

// 1 - a.b / (2 |a|^2)
double factor_of(const Dot& squares, double product, double other_squares) {
  const bool is_zero = squares.value <= kCancelled * squares.magnitude ||
                       squares.value <= kNegligible * other_squares;
  return is_zero ? 1 : 1 - product / (2 * squares.value);
}

Coefficients combined(std::span<const double> gram, const Coefficients& a, const Coefficients& b) {
  const Dot of_a = dot(gram, a, a), of_b = dot(gram, b, b);
  const double product = dot(gram, a, b).value;
  const double with_a = factor_of(of_a, product, of_b.value);
  const double with_b = factor_of(of_b, product, of_a.value);
  Coefficients sum(a.size());
  for (size_t s = 0; s < sum.size(); ++s) sum[s] = with_a * a[s] + with_b * b[s];
  return sum;
}

// Absolute rounding below 1, where a coefficient may be a difference of larger numbers.
double rounded_coefficient(double value) {
  if (!std::isfinite(value)) return value;
  const int exponent = std::abs(value) > 1 ? std::ilogb(value) : 0;
  return std::ldexp(std::nearbyint(std::ldexp(value, kCoefficientBits - exponent)),
                    exponent - kCoefficientBits);
}

}  // namespace

std::vector<double> adasum_coefficients(std::span<const double> gram,
                                        const std::vector<bool>& counts) {
  const size_t sites = counts.size();
  TRIREME_CHECK(gram.size() == sites * sites, "Gram matrix of ", gram.size(), " elements of ",
                sites, " sites");
  std::vector<Coefficients> nodes;
  for (size_t s = 0; s < sites; ++s) {
    if (!counts[s]) continue;
    nodes.emplace_back(sites);
    nodes.back()[s] = 1;
  }
  if (nodes.empty()) return Coefficients(sites);
  while (nodes.size() > 1) {
    std::vector<Coefficients> above;
    for (size_t n = 0; n + 1 < nodes.size(); n += 2)
      above.push_back(combined(gram, nodes[n], nodes[n + 1]));
    if (nodes.size() % 2 == 1) above.push_back(nodes.back());
    nodes = std::move(above);
  }
  for (double& c : nodes.front()) c = rounded_coefficient(c);
  return nodes.front();
}

}  // namespace trireme
