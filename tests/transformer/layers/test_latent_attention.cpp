// Latent attention compared with its formulas, its gradients with differences, and with tensor
// parallelism.
#include <gtest/gtest.h>

#include "tests/support/compare.h"
#include "tests/transformer/layers/latent_case.h"

namespace trireme::test::test_latent_attention {
namespace {

constexpr double kSame = 1e-12;  // of the largest, between two computations in float64

TEST(LatentAttention, ForwardIsTheFormula) {
  for (const LatentCase& c : latent_cases()) {
    const std::vector<double> want = latent_reference(c, latent_values(c));
    EXPECT_LT(worst_relative(run_latent(c, {}).y, want), kSame) << c.name;
  }
}

TEST(LatentAttention, GradientsAreDifferencesOfTheFormula) {
  for (const LatentCase& c : latent_cases()) {
    const NamedValues values = latent_values(c);
    LatentResult got = run_latent(c, {});
    got.grads["x"] = got.dx;
    EXPECT_EQ(got.grads.size() + 1, values.size()) << "all but dy have a gradient";
    for (const auto& [name, gradient] : got.grads) {
      const auto output = [&, name = name](const std::vector<double>& changed) {
        NamedValues all = values;
        all[name] = changed;
        return latent_reference(c, all);
      };
      const std::vector<double> want =
          finite_difference_gradient(output, values.at(name), values.at("dy"));
      EXPECT_LT(worst_relative(gradient, want), finite_difference_tolerance())
          << c.name << ", " << name;
    }
  }
}

TEST(LatentAttention, IsRefusedWithoutRotaryPositions) {
  LatentCase c = latent_case("full");
  c.config.rope_layers = {0};
  EXPECT_THROW(latent_values(c), Error);
}

// Documents are independent: a token of one has no gradient from another.
TEST(LatentAttention, DocumentsAreApart) {
  LatentCase c = latent_case("full"), alone = c;
  alone.lengths = {c.lengths[0]};
  const size_t n = static_cast<size_t>(alone.tokens() * c.config.hidden_size);
  const std::vector<double> all = run_latent(c, {}).y, first = run_latent(alone, {}).y;
  EXPECT_EQ(std::vector<double>(all.begin(), all.begin() + static_cast<int64_t>(n)), first);
}

TEST(LatentAttention, TensorRanksGiveWhatOneGives) {
  for (const LatentCase& c : latent_cases()) {
    const LatentResult one = run_latent(c, {});
    for (const int tp : {2, 4})
      for (const bool sequence_parallel : {false, true}) {
        ParallelSizes sizes;
        sizes.tp = tp;
        sizes.sequence_parallel = sequence_parallel;
        const LatentResult got = run_latent(c, sizes);
        const std::string name = concat(c.name, " tp", tp, sequence_parallel ? " sp" : "");
        EXPECT_LT(worst_relative(got.y, one.y), kSame) << name;
        EXPECT_LT(worst_relative(got.dx, one.dx), kSame) << name;
        ASSERT_EQ(got.grads.size(), one.grads.size());
        for (const auto& [parameter, gradient] : one.grads)
          EXPECT_LT(worst_relative(got.grads.at(parameter), gradient), kSame)
              << name << ", " << parameter;
      }
  }
}

}  // namespace
}  // namespace trireme::test::test_latent_attention
