// Adasum against its definition on vectors.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "engine/core/error.h"
#include "parallel/outer/adasum.h"

namespace trireme::test::test_adasum {
namespace {

using Vector = std::vector<double>;
using Vectors = std::vector<Vector>;

double product(const Vector& a, const Vector& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

Vector weighted(double of_a, const Vector& a, double of_b, const Vector& b) {
  Vector sum(a.size());
  for (size_t i = 0; i < a.size(); ++i) sum[i] = of_a * a[i] + of_b * b[i];
  return sum;
}

Vector pair_of(const Vector& a, const Vector& b) {
  const double dot = product(a, b), squares_a = product(a, a), squares_b = product(b, b);
  return weighted(squares_a == 0 ? 1 : 1 - dot / (2 * squares_a), a,
                  squares_b == 0 ? 1 : 1 - dot / (2 * squares_b), b);
}

Vector tree_of(Vectors nodes) {
  while (nodes.size() > 1) {
    Vectors above;
    for (size_t n = 0; n < nodes.size(); n += 2)
      above.push_back(n + 1 < nodes.size() ? pair_of(nodes[n], nodes[n + 1]) : nodes[n]);
    nodes = above;
  }
  return nodes.front();
}

Vector coefficients_of(const Vectors& updates, const std::vector<bool>& counts) {
  Vector gram;
  for (const Vector& a : updates)
    for (const Vector& b : updates) gram.push_back(product(a, b));
  return adasum_coefficients(gram, counts);
}

Vector combination_of(const Vectors& updates, const std::vector<bool>& counts) {
  const Vector c = coefficients_of(updates, counts);
  Vector sum(updates.front().size());
  for (size_t s = 0; s < updates.size(); ++s) sum = weighted(1, sum, c[s], updates[s]);
  return sum;
}

std::vector<bool> all(size_t sites) { return std::vector<bool>(sites, true); }

void expect_near(const Vector& got, const Vector& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(got[i], want[i], 1e-7) << i;  // elements of about 10 times rounded coefficients
}

Vectors some_updates(size_t sites) {
  Vectors updates(sites);
  for (size_t s = 0; s < sites; ++s)
    for (size_t i = 0; i < 12; ++i)
      updates[s].push_back(static_cast<double>((i * 31 + s * 17) % 23) - 9);
  return updates;
}

TEST(Adasum, IsTheTreeOfPairs) {
  for (size_t sites = 1; sites <= 9; ++sites) {
    const Vectors updates = some_updates(sites);
    expect_near(combination_of(updates, all(sites)), tree_of(updates));
  }
}

TEST(Adasum, EqualUpdatesAreAveragedAndOrthogonalOnesAdded) {
  for (const size_t sites : {2, 4, 8}) {
    EXPECT_EQ(coefficients_of(Vectors(sites, {3, -1, 2}), all(sites)),
              Vector(sites, 1.0 / static_cast<double>(sites)));
    Vectors orthogonal(sites, Vector(sites));
    for (size_t s = 0; s < sites; ++s) orthogonal[s][s] = static_cast<double>(s) + 0.5;
    EXPECT_EQ(coefficients_of(orthogonal, all(sites)), Vector(sites, 1.0));
  }
  // A tree of three is not a mean: the third has the weight of the other two.
  EXPECT_EQ(coefficients_of(Vectors(3, {1, 2}), all(3)), (Vector{0.25, 0.25, 0.5}));
}

TEST(Adasum, PairsTheUpdatesThatCount) {
  const Vectors updates = some_updates(6);
  const std::vector<bool> counts{false, true, true, false, true, true};
  EXPECT_EQ(coefficients_of(updates, counts)[0], 0);
  EXPECT_EQ(coefficients_of(updates, counts)[3], 0);
  expect_near(combination_of(updates, counts),
              tree_of({updates[1], updates[2], updates[4], updates[5]}));
  EXPECT_EQ(coefficients_of(updates, std::vector<bool>(6)), Vector(6));
}

TEST(Adasum, AnUpdateOfZeroChangesNothing) {
  Vectors updates = some_updates(3);
  updates[1].assign(12, 0.0);
  expect_near(combination_of(updates, all(3)), pair_of(updates[0], updates[2]));
  EXPECT_EQ(coefficients_of(Vectors(4, Vector(3)), all(4)), Vector(4, 1.0));
}

// Opposite updates cancel to rounding errors, whose direction must not matter.
TEST(Adasum, OppositeUpdatesCancel) {
  Vectors updates = some_updates(4);
  updates[1] = weighted(-1.0, updates[0], 0, updates[0]);
  for (double& x : updates[0]) x /= 3;
  for (double& x : updates[1]) x /= 3;
  const Vector combination = combination_of(updates, all(4));
  expect_near(combination, pair_of(updates[2], updates[3]));
}

TEST(Adasum, TinyUpdatesHaveFiniteCoefficients) {
  for (const double tiny : {1e-3, 1e-10, 1e-18, 1e-30, 1e-150}) {
    const Vector c = coefficients_of({{tiny, 0}, {1, 1}}, all(2));
    EXPECT_TRUE(std::isfinite(static_cast<float>(c[0]))) << tiny;
    EXPECT_LT(std::abs(c[0] * tiny), 2) << tiny;
  }
}

// A difference of rounding in the products does not change the coefficients.
TEST(Adasum, DoesNotShowTheOrderOfSums) {
  const Vectors updates = some_updates(5);
  Vector gram, other;
  for (const Vector& a : updates)
    for (const Vector& b : updates) {
      gram.push_back(product(a, b) / 7);
      other.push_back(gram.back() * (1 + 4e-16));
    }
  EXPECT_EQ(adasum_coefficients(gram, all(5)), adasum_coefficients(other, all(5)));
  EXPECT_THROW(adasum_coefficients(gram, all(4)), CheckFailed);
}

}  // namespace
}  // namespace trireme::test::test_adasum
