#include <gtest/gtest.h>

#include "tests/transformer/families/published_case.h"
#include "transformer/formats/hf/hf_source.h"
#include "transformer/model/model.h"

namespace trireme::test_deepseek_v3 {
namespace {

TEST(Families, DeepseekV3AsPublished) {
  const test::PublishedConfig got = test::read_valid(test::kDeepseekV3);
  const ModelConfig& c = got.config;
  EXPECT_EQ(c.latent, (LatentConfig{1536, 512, 128, 64, 128}));
  EXPECT_TRUE(c.moe.sigmoid_scores && c.moe.selection_bias && c.moe.normalize_weights);
  EXPECT_EQ(c.moe.groups, 8);
  EXPECT_EQ(c.moe.kept_groups, 4);
  EXPECT_EQ(c.moe.weight_scale, 2.5);
  EXPECT_EQ(c.moe.balance_coef, 0) << "transformers has no such loss";
  EXPECT_FALSE(c.moe.sparse(2));
  EXPECT_TRUE(c.moe.sparse(3));
  ASSERT_EQ(got.notes.size(), 1u);
  EXPECT_EQ(got.notes[0],
            "model.num_nextn_predict_layers: the 1 layers after layer 60, which predict tokens "
            "after the next, are not run; copies of the model keep them");
  EXPECT_TRUE(hf_tensor_is_ignored(c, "model.layers.61.eh_proj.weight"));
  EXPECT_FALSE(hf_tensor_is_ignored(c, "model.layers.62.eh_proj.weight"));
  EXPECT_FALSE(hf_tensor_is_ignored(c, "model.layers.6.mlp.gate.weight"));
  EXPECT_NEAR(static_cast<double>(parameter_count(c)), 671.03e9, 0.01e9);
  test::expect_round_trip(c);
}

}  // namespace
}  // namespace trireme::test_deepseek_v3
