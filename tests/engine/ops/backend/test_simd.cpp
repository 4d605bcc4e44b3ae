// Vector helpers, in their portable build, which runs on every machine; the other two instruction
// sets differ only in width and in fused multiply-adds.
#define TRIREME_ISA portable
#include <cmath>
#include <limits>

#include "engine/ops/backend/simd.cpu.h"
#include "tests/support/compare.h"

namespace trireme::cpu::portable::test_simd {
namespace {

// Error in units in the last place of the correctly rounded result.
template <class S>
double ulps(S got, long double want) {
  const S rounded = static_cast<S>(want);
  if (std::isinf(rounded) || std::isinf(got)) return got == rounded ? 0 : INFINITY;
  const S size = std::abs(rounded);
  const S unit = std::nextafter(size, std::numeric_limits<S>::infinity()) - size;
  return static_cast<double>(std::abs(static_cast<long double>(got) - want) / unit);
}

// Largest error of `f` against `reference` over values evenly spaced in [-limit, limit].
template <class S, class F, class G>
double worst_ulps(S limit, F&& f, G&& reference) {
  double worst = 0;
  constexpr int kPoints = 100'003;
  for (int i = 0; i < kPoints; ++i) {
    const S x = limit * (S(2) * static_cast<S>(i) / S(kPoints - 1) - S(1));
    worst = std::max(worst, ulps(f(x), reference(static_cast<long double>(x))));
  }
  return worst;
}

template <class S>
void check_accuracy(S exp_limit, S exp2_limit) {
  const auto exp_reference = [](long double x) { return std::exp(x); };
  const auto tanh_reference = [](long double x) { return std::tanh(x); };
  const auto sigmoid_reference = [](long double x) { return 1 / (1 + std::exp(-x)); };
  const auto exp2_reference = [](long double x) { return std::exp2(x); };
  for (const S limit : {S(0.01), S(1), S(30), exp_limit}) {
    EXPECT_LT(worst_ulps<S>(
                  limit, [](S x) { return fast_exp(x); }, exp_reference),
              2);
    EXPECT_LT(worst_ulps<S>(
                  limit, [](S x) { return fast_tanh(x); }, tanh_reference),
              4);
  }
  for (const S limit : {S(0.01), S(1), S(30), S(80)})
    EXPECT_LT(worst_ulps<S>(
                  limit, [](S x) { return fast_sigmoid(x); }, sigmoid_reference),
              4);
  for (const S limit : {S(1), exp2_limit})
    EXPECT_LT(worst_ulps<S>(
                  limit, [](S x) { return fast_exp2_small(x); }, exp2_reference),
              2);
}

TEST(Simd, ElementaryFunctionsAreAccurate) {
  check_accuracy<float>(104, 126);
  check_accuracy<double>(746, 1022);
}

template <class S>
void check_special_values() {
  const S inf = std::numeric_limits<S>::infinity(), nan = std::numeric_limits<S>::quiet_NaN();
  EXPECT_EQ(fast_exp(inf), inf);
  EXPECT_EQ(fast_exp(-inf), S(0));
  EXPECT_EQ(fast_exp(S(1e30)), inf);
  EXPECT_EQ(fast_exp(S(-1e30)), S(0));
  EXPECT_EQ(fast_exp(S(0)), S(1));
  EXPECT_TRUE(std::isnan(fast_exp(nan)));
  EXPECT_EQ(fast_exp2_small(-inf), S(0));
  EXPECT_EQ(fast_exp2_small(S(-1e30)), S(0));
  EXPECT_TRUE(std::isnan(fast_exp2_small(nan)));
  EXPECT_EQ(fast_tanh(inf), S(1));
  EXPECT_EQ(fast_tanh(-inf), S(-1));
  EXPECT_TRUE(std::isnan(fast_tanh(nan)));
  EXPECT_EQ(fast_sigmoid(inf), S(1));
  EXPECT_EQ(fast_sigmoid(-inf), S(0));
  EXPECT_TRUE(std::isnan(fast_sigmoid(nan)));
  EXPECT_TRUE(std::signbit(fast_tanh(S(-0.0))));
}

TEST(Simd, SpecialValues) {
  check_special_values<float>();
  check_special_values<double>();
}

template <class S>
void check_lanes() {
  constexpr int kN = kLanes<S>;
  Vec<S> rows[kN];
  for (int i = 0; i < kN; ++i)
    for (int j = 0; j < kN; ++j) rows[i][j] = static_cast<S>(100 * i + j);
  transpose<Vec<S>>(rows);
  for (int i = 0; i < kN; ++i)
    for (int j = 0; j < kN; ++j) EXPECT_EQ(rows[i][j], static_cast<S>(100 * j + i));
  EXPECT_EQ(sum(iota<Vec<S>>() + S(1)), static_cast<S>(kN * (kN + 1) / 2));
  EXPECT_TRUE(std::signbit(splat<Vec<S>>(S(-0.0))[kN - 1]));
}

TEST(Simd, TransposeAndSum) {
  check_lanes<float>();
  check_lanes<double>();
}

// Vector conversions round exactly like the scalar types, full and partial vectors.
template <class T>
void check_conversion() {
  constexpr int kN = kLanes<float>;
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> values = {0.0f,     -0.0f,  inf,    -inf,        std::nanf(""),
                               1.00390f, 3e-39f, 1e-42f, 65504.0f,    70000.0f,
                               3.4e38f,  -1e-8f, 1.5f,   -0.3333333f, 1.00195f};
  for (double v : test::normals("conversion", 1009)) values.push_back(static_cast<float>(v));
  values.resize(values.size() / kN * kN);
  for (size_t i = 0; i < values.size(); i += kN) {
    Vec<float> v;
    for (int j = 0; j < kN; ++j) v[j] = values[i + static_cast<size_t>(j)];
    T stored[kN], part[kN] = {};
    store(stored, v);
    store_partial(part, kN - 1, v);
    const Vec<float> back = load(stored), partly = load_partial(stored, kN - 1);
    for (int j = 0; j < kN; ++j) {
      const T want(values[i + static_cast<size_t>(j)]);
      EXPECT_EQ(stored[j].bits, want.bits) << values[i + static_cast<size_t>(j)];
      EXPECT_EQ(part[j].bits, j == kN - 1 ? 0 : want.bits);
      const float loaded = back[j], expected = static_cast<float>(want);
      EXPECT_EQ(std::bit_cast<uint32_t>(loaded), std::bit_cast<uint32_t>(expected));
      const float in_part = partly[j], expected_part = j == kN - 1 ? 0.0f : expected;
      EXPECT_EQ(std::bit_cast<uint32_t>(in_part), std::bit_cast<uint32_t>(expected_part));
    }
  }
}

TEST(Simd, ConversionsRoundLikeTheScalarTypes) {
  check_conversion<bf16>();
  check_conversion<f16>();
}

}  // namespace
}  // namespace trireme::cpu::portable::test_simd
