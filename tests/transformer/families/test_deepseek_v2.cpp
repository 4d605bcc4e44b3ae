#include <gtest/gtest.h>

#include <cmath>

#include "tests/transformer/families/published_case.h"
#include "transformer/model/model.h"

namespace trireme::test_deepseek_v2 {
namespace {

TEST(Families, DeepseekV2LiteAsPublished) {
  const ModelConfig c = test::read_valid(test::kDeepseekV2Lite).config;
  EXPECT_EQ(c.latent, (LatentConfig{0, 512, 128, 64, 128}));
  EXPECT_EQ(c.head_dim, 192);
  EXPECT_TRUE(c.rope_interleaved);
  // Both m of YaRN are equal, so that the table's factor is 1 and the softmax scale has both.
  const double m = 0.1 * 0.707 * std::log(40.0) + 1;
  EXPECT_NEAR(c.attention_scale, m * m / std::sqrt(192.0), 1e-12);
  EXPECT_FALSE(c.moe.sigmoid_scores || c.moe.selection_bias || c.moe.normalize_weights);
  EXPECT_EQ(c.moe.shared_intermediate_size, 2816);
  EXPECT_EQ(c.moe.balance_coef, 0.001);
  EXPECT_EQ(parameter_count(c), 15706484224);
  test::expect_round_trip(c);
}

}  // namespace
}  // namespace trireme::test_deepseek_v2
