// Negative tests of the comparison helpers: each test damages a correct result and expects a
// failure.
#include <algorithm>
#include <cmath>

#include "tests/support/compare.h"
#include "tests/support/op_run.h"

namespace trireme::test {
namespace {

constexpr int64_t kRows = 5, kColumns = 33;
constexpr double kInf = INFINITY;

std::vector<double> reference() { return normals("reference", kRows * kColumns); }

using Comparison = std::string (*)(const ConstTensor&, const std::vector<double>&, Tolerance);

struct Case {
  const char* name;
  Comparison compare;
};

std::string same_bits(const ConstTensor& got, const std::vector<double>& want, Tolerance) {
  return compare_exact(got, TestTensor(got.dtype(), got.shape(), want));
}

// worst_relative against the tolerance, as the gradient tests use it.
std::string by_worst_relative(const ConstTensor& got, const std::vector<double>& want,
                              Tolerance tol) {
  const double worst = worst_relative(to_doubles(got), want);
  return worst <= tol.relative ? "" : concat("worst ", worst);
}

// compare_within, without cancellation.
std::string within_own_size(const ConstTensor& got, const std::vector<double>& want,
                            Tolerance tol) {
  std::vector<double> magnitude = want;
  for (double& m : magnitude) m = std::abs(m);
  return compare_within(got, want, magnitude, tol);
}

class CompareFails : public ::testing::TestWithParam<Case> {
 protected:
  // Result of the helper for `values` against the reference, in float32.
  std::string verdict(const std::vector<double>& values, const std::vector<double>& want) const {
    const TestTensor got(DType::kF32, {kRows, kColumns}, values);
    return GetParam().compare(got, want, tolerance(DType::kF32));
  }
};

TEST_P(CompareFails, ButAcceptsTheReference) {
  // Rounded to float32 first, so that the bitwise comparison agrees too.
  const std::vector<double> want =
      to_doubles(TestTensor(DType::kF32, {kRows, kColumns}, reference()));
  EXPECT_EQ(verdict(want, want), "");
}

TEST_P(CompareFails, OnOneWrongElement) {
  for (size_t at : {size_t{0}, size_t{77}, size_t{kRows * kColumns - 1}}) {
    std::vector<double> values = reference();
    values[at] += 0.01;
    EXPECT_NE(verdict(values, reference()), "") << at;
  }
}

TEST_P(CompareFails, OnNan) {
  std::vector<double> values = reference();
  values[3] = std::nan("");
  EXPECT_NE(verdict(values, reference()), "");
}

TEST_P(CompareFails, OnInfinity) {
  for (double infinity : {kInf, -kInf}) {
    std::vector<double> values = reference();
    values[40] = infinity;
    EXPECT_NE(verdict(values, reference()), "");
    EXPECT_NE(verdict(reference(), values), "") << "an infinite reference allows everything";
  }
}

TEST_P(CompareFails, OnSwappedRows) {
  std::vector<double> values = reference();
  std::swap_ranges(values.begin(), values.begin() + kColumns, values.begin() + 2 * kColumns);
  EXPECT_NE(verdict(values, reference()), "");
}

TEST_P(CompareFails, OnSwappedNeighbours) {
  std::vector<double> values = reference();
  std::swap(values[10], values[11]);
  EXPECT_NE(verdict(values, reference()), "");
}

TEST_P(CompareFails, OnAllZeros) {
  EXPECT_NE(verdict(std::vector<double>(reference().size(), 0.0), reference()), "");
}

INSTANTIATE_TEST_SUITE_P(Helpers, CompareFails,
                         ::testing::Values(Case{"compare", compare},
                                           Case{"compare_each", compare_each},
                                           Case{"compare_within", within_own_size},
                                           Case{"compare_exact", same_bits},
                                           Case{"worst_relative", by_worst_relative}),
                         [](const auto& test_case) { return test_case.param.name; });

TEST(Compare, FailsOnNanOnBothSides) {
  std::vector<double> values = reference();
  values[0] = std::nan("");
  const TestTensor got(DType::kF64, {kRows, kColumns}, values);
  EXPECT_NE(compare(got, values, tolerance(DType::kF64)), "");
  EXPECT_NE(compare_each(got, values, tolerance(DType::kF64)), "");
}

TEST(Compare, FailsOnAnotherSize) {
  const TestTensor got(DType::kF64, {kRows, kColumns}, reference());
  std::vector<double> want = reference();
  want.push_back(0.0);
  EXPECT_NE(compare(got, want, tolerance(DType::kF64)), "");
  EXPECT_NE(compare_each(got, want, tolerance(DType::kF64)), "");
  EXPECT_EQ(worst_relative(reference(), want), kInf);
  const TestTensor other(DType::kF64, {kColumns, kRows}, reference());
  EXPECT_NE(compare_exact(got, other), "") << "same bytes, other shape";
}

TEST(Compare, FailsOnAnotherDtype) {
  const TestTensor a(DType::kBF16, {3}), b(DType::kF16, {3});
  EXPECT_NE(compare_exact(a, b), "");
}

TEST(Compare, ExactDistinguishesZeros) {
  const TestTensor plus(DType::kF32, {1}, {0.0}), minus(DType::kF32, {1}, {-0.0});
  EXPECT_NE(compare_exact(plus, minus), "");
}

TEST(Compare, ARowSetsItsOwnScale) {
  // An error of 1e-3 is negligible next to 1e6 in the same row, but not in another row.
  std::vector<double> want = {1e6, 1.0, 1.0, 1.0};
  std::vector<double> values = want;
  values[3] += 1e-3;
  EXPECT_NE(compare(TestTensor(DType::kF32, {2, 2}, values), want, tolerance(DType::kF32)), "");
}

TEST(Compare, EachSeesASmallElementBesideALargeOne) {
  const std::vector<double> want = {1e6, 1.0};
  const TestTensor got(DType::kF32, {1, 2}, {1e6, 1.001});
  EXPECT_EQ(compare(got, want, tolerance(DType::kF32)), "");
  EXPECT_NE(compare_each(got, want, tolerance(DType::kF32)), "");
}

TEST(Compare, WithinAllowsTheErrorOfTermsThatCancel) {
  const std::vector<double> want = {0.0, 0.0}, magnitude = {1e6, 1.0};
  const TestTensor got(DType::kF32, {1, 2}, {0.1, 0.0}), wrong(DType::kF32, {1, 2}, {0.0, 0.1});
  EXPECT_EQ(compare_within(got, want, magnitude, tolerance(DType::kF32)), "");
  EXPECT_NE(compare_within(wrong, want, magnitude, tolerance(DType::kF32)), "");
  EXPECT_NE(compare_within(got, want, {1e6}, tolerance(DType::kF32)), "");
}

TEST(Compare, WithinAllowsNoInfiniteMagnitude) {
  const TestTensor got(DType::kF32, {1}, {2.0});
  EXPECT_NE(compare_within(got, {1.0}, {kInf}, tolerance(DType::kF32)), "");
}

TEST(Compare, ReadsStridedViews) {
  const TestTensor base(DType::kF32, {2, 3}, {0, 1, 2, 3, 4, 5});
  EXPECT_EQ(to_doubles(base->slice(1, 1, 3)), (std::vector<double>{1, 2, 4, 5}));
}

TEST(Tolerance, IsWideEnoughForRoundingAndNoWider) {
  for (DType dtype : kFloatTypes) {
    const std::vector<double> want = normals("rounding", 1000);
    const TestTensor rounded(dtype, {1000}, want);
    EXPECT_EACH_CLOSE(rounded, want, tolerance(dtype));
    // Errors of two percent, and of one part in a million, must be detected where the type can
    // represent them.
    std::vector<double> off = want;
    for (double& x : off) x *= 1.02;
    EXPECT_NE(compare_each(TestTensor(dtype, {1000}, off), want, tolerance(dtype)), "");
  }
  EXPECT_LT(tolerance(DType::kF64).relative, 1e-14) << "float64 does not accumulate in float32";
  EXPECT_LT(tolerance(DType::kF32).relative, 2e-6);
  EXPECT_LT(tolerance(DType::kBF16).relative, 0.01);
  EXPECT_LT(tolerance(DType::kF32, 1000).relative, 1e-4);
}

TEST(FiniteDifferences, FindTheGradientAndCatchAWrongOne) {
  const std::vector<double> x = normals("x", 7), dy = normals("dy", 7);
  const auto f = [](const std::vector<double>& v) {
    std::vector<double> y(v.size());
    for (size_t i = 0; i < v.size(); ++i) y[i] = std::sin(v[i]) * v[(i + 1) % v.size()];
    return y;
  };
  std::vector<double> right(7, 0.0);
  for (size_t i = 0; i < 7; ++i) {
    right[i] += dy[i] * std::cos(x[i]) * x[(i + 1) % 7];
    right[(i + 1) % 7] += dy[i] * std::sin(x[i]);
  }
  const std::vector<double> found = finite_difference_gradient(f, x, dy);
  EXPECT_LT(worst_relative(right, found), finite_difference_tolerance());
  // One element off by one part in a million; a missing term; a wrong sign; NaN.
  for (int damage = 0; damage < 4; ++damage) {
    std::vector<double> wrong = right;
    if (damage == 0) wrong[2] += 1e-6 * std::abs(*std::ranges::max_element(right));
    if (damage == 1) wrong[3] = 0.0;
    if (damage == 2) wrong[4] = -wrong[4];
    if (damage == 3) wrong[5] = std::nan("");
    EXPECT_GT(worst_relative(wrong, found), finite_difference_tolerance()) << damage;
  }
}

TEST(FiniteDifferences, RejectAnotherNumberOfOutputs) {
  const auto f = [](const std::vector<double>& v) { return v; };
  EXPECT_THROW(finite_difference_gradient(f, {1.0, 2.0}, {1.0}), Error);
}

TEST(Normals, AreNamedStreams) {
  EXPECT_EQ(normals("a", 10), normals("a", 10));
  EXPECT_NE(normals("a", 10), normals("b", 10));
}

TEST(GuardBands, SeeAWriteOnEitherSide) {
  for (int64_t at : {int64_t{-1}, int64_t{3}}) {
    const TestTensor t(DType::kF32, {3});
    EXPECT_TRUE(t.guards_intact());
    t->as<float>()[at] = 0.0f;
    EXPECT_FALSE(t.guards_intact());
  }
}

}  // namespace
}  // namespace trireme::test
