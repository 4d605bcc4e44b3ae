#include <gtest/gtest.h>

#include "tests/transformer/families/published_case.h"

namespace trireme::test_granite {
namespace {

using test::expect_round_trip;
using test::published_problem;
using test::PublishedConfig;
using test::read_published;

std::string published() { return test::published_file("granite-3.3-8b"); }

TEST(Families, GraniteAsPublished) {
  const PublishedConfig got = read_published(published());
  ASSERT_TRUE(got.errors.empty()) << got.errors[0];
  EXPECT_TRUE(got.notes.empty());
  const ModelConfig& c = got.config;
  EXPECT_EQ(c.embedding_scale, 12);
  EXPECT_TRUE(c.exact_embedding_scale);
  EXPECT_EQ(c.attention_scale, 1 / 128.0);
  EXPECT_EQ(c.residual_scale, 0.22);
  EXPECT_EQ(c.logits_divisor, 16);
  EXPECT_TRUE(c.tie_word_embeddings);
  EXPECT_EQ(c.head_dim, 128);
  EXPECT_EQ(c.num_kv_heads, 8);
  EXPECT_EQ(c.rope_theta, 10000000);
  expect_round_trip(c);
}

// Without the factors of a file nothing is scaled, the softmax neither.
TEST(Families, GranitesDefaultsAreTransformers) {
  const PublishedConfig got = read_published(
      R"({"model_type": "granite", "vocab_size": 99, "hidden_size": 32, "intermediate_size": 44,
          "num_hidden_layers": 2, "num_attention_heads": 4})");
  ASSERT_TRUE(got.errors.empty()) << got.errors[0];
  const ModelConfig& c = got.config;
  EXPECT_EQ(c.embedding_scale, 1);
  EXPECT_EQ(c.attention_scale, 1);
  EXPECT_EQ(c.residual_scale, 1);
  EXPECT_EQ(c.logits_divisor, 1);
  EXPECT_EQ(c.num_kv_heads, 4);
  EXPECT_EQ(c.max_positions, 2048);
  EXPECT_EQ(c.norm_eps, 1e-6);
  EXPECT_EQ(c.rope_theta, 10000);
  EXPECT_FALSE(c.tie_word_embeddings || c.attention_bias || c.mlp_bias);
  expect_round_trip(c);
}

TEST(Families, WhatGraniteCannotBe) {
  for (const char* key :
       {"embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling"}) {
    EXPECT_EQ(published_problem(published(), concat("\"", key, "\": 0")),
              concat("model.", key, ": must be above 0, got 0"));
    EXPECT_EQ(published_problem(published(), concat("\"", key, "\": -0.5")),
              concat("model.", key, ": must be above 0, got -0.5"));
  }
  EXPECT_EQ(published_problem(published(), R"("num_local_experts": 32)"),
            "model.num_local_experts: 32 is not available in this version (mixture of experts in a "
            "dense family); only 0 or 1 is");
  EXPECT_EQ(published_problem(published(), R"("position_embedding_type": "nope")").substr(0, 29),
            "model.position_embedding_type");
  EXPECT_EQ(
      published_problem(published(), R"("query_pre_attn_scalar": 144)"),
      "model.query_pre_attn_scalar: 144 is not available in this version (another scale of the "
      "softmax)");
}

}  // namespace
}  // namespace trireme::test_granite
