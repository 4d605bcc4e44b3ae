#include <gtest/gtest.h>

#include <cmath>

#include "tests/transformer/families/published_case.h"
#include "transformer/formats/hf/hf_source.h"

namespace trireme::test_kimi_k2 {
namespace {

using test::expect_round_trip;
using test::published_problem;
using test::PublishedConfig;
using test::read_published;

std::string published() { return test::published_file("kimi-k2"); }

TEST(Families, KimiK2AsPublished) {
  const PublishedConfig got = read_published(published());
  ASSERT_TRUE(got.errors.empty()) << got.errors[0];
  EXPECT_TRUE(got.notes.empty());
  const ModelConfig& c = got.config;
  EXPECT_EQ(c.latent, (LatentConfig{1536, 512, 128, 64, 128}));
  EXPECT_TRUE(c.rope_interleaved);
  EXPECT_TRUE(c.moe.sigmoid_scores && c.moe.selection_bias && c.moe.normalize_weights);
  EXPECT_EQ(c.moe.experts, 384);
  EXPECT_EQ(c.moe.groups, 1);
  EXPECT_EQ(c.moe.kept_groups, 1);
  EXPECT_EQ(c.moe.weight_scale, 2.827);
  EXPECT_EQ(c.moe.balance_coef, 0.001);
  EXPECT_FALSE(c.moe.sparse(0));
  EXPECT_TRUE(c.moe.sparse(1));
  EXPECT_EQ(c.extra_layers, 0);
  const double m = 0.1 * std::log(32.0) + 1;
  EXPECT_NEAR(c.attention_scale, m * m / std::sqrt(192.0), 1e-12);
  EXPECT_TRUE(hf_tensor_is_ignored(c, "model.layers.3.self_attn.rotary_emb.inv_freq"));
  expect_round_trip(c);
}

TEST(Families, WhatKimiK2CannotBe) {
  EXPECT_EQ(published_problem(published(), R"("rope_interleave": false)"),
            "model.rope_interleave: false is refused: this family rotates pairs of neighbours");
  EXPECT_EQ(published_problem(published(), R"("rope_interleave": true)"), "0 errors");
  EXPECT_EQ(published_problem(published(), R"("num_key_value_heads": 8)"),
            "model.num_key_value_heads: must be num_attention_heads 64, got 8: every head has its "
            "own keys and values");
  EXPECT_EQ(published_problem(published(), R"("n_group": 7)"),
            "model.n_group: 7 does not divide n_routed_experts 384");
  EXPECT_NE(published_problem(published(), R"("scoring_func": "softmax")").find("sigmoid"),
            std::string::npos);
  EXPECT_NE(
      published_problem(published(), R"("architectures": ["KimiK25ForConditionalGeneration"])")
          .find("whose class is DeepseekV3ForCausalLM"),
      std::string::npos);
}

}  // namespace
}  // namespace trireme::test_kimi_k2
