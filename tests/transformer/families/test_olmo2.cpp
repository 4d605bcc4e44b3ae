#include <gtest/gtest.h>

#include "tests/transformer/families/published_case.h"

namespace trireme::test_olmo2 {
namespace {

using test::expect_round_trip;
using test::PublishedConfig;

TEST(Families, Olmo2AsPublished) {
  const PublishedConfig got = test::read_valid(test::published_file("olmo-2-7b"));
  EXPECT_TRUE(got.notes.empty());
  const ModelConfig& c = got.config;
  EXPECT_TRUE(c.post_norms && c.qk_norm && c.qk_norm_whole);
  EXPECT_FALSE(c.pre_norms || c.attention_bias);
  EXPECT_EQ(c.rope_theta, 500000);
  EXPECT_EQ(c.num_kv_heads, 32);
  expect_round_trip(c);
  EXPECT_EQ(test::published_problem(test::published_file("olmo-2-7b"), R"("use_qk_norm": false)"),
            "model.use_qk_norm: false is not available in this version (normalized heads of q and "
            "k, or none); only true is");
}

TEST(Families, Olmo3AsPublished) {
  const std::string published = test::published_file("olmo-3.1-32b");
  const PublishedConfig got = test::read_valid(published);
  const ModelConfig& c = got.config;
  EXPECT_TRUE(c.post_norms && c.qk_norm && c.qk_norm_whole);
  EXPECT_FALSE(c.pre_norms);
  EXPECT_EQ(c.window(0), 4096);
  EXPECT_EQ(c.window(3), 0);
  EXPECT_EQ(c.rope_scaling.type, RopeType::kYarn);
  EXPECT_EQ(c.local_rope_theta, 500000);
  expect_round_trip(c);
  // Its layers with a window do not see a base at the top level.
  const PublishedConfig other = test::read_published(published, R"("rope_theta": 100)");
  ASSERT_TRUE(other.errors.empty()) << other.errors[0];
  EXPECT_EQ(other.config.rope_theta, 100);
  EXPECT_EQ(other.config.local_rope_theta, 500000);
  expect_round_trip(other.config);
  EXPECT_EQ(test::published_problem(published, R"("sliding_window": null)"),
            "model.sliding_window: is required: some layers are \"sliding_attention\"");
}

TEST(Families, SeedOssAsPublished) {
  const PublishedConfig got = test::read_valid(test::published_file("seed-oss-36b"));
  const ModelConfig& c = got.config;
  EXPECT_TRUE(c.attention_bias);
  EXPECT_FALSE(c.attention_output_bias || c.mlp_bias);
  EXPECT_EQ(c.residual_dropout, 0.1);
  EXPECT_EQ(c.attention_dropout, 0.1);
  EXPECT_EQ(c.head_dim, 128);
  expect_round_trip(c);
}

}  // namespace
}  // namespace trireme::test_olmo2
