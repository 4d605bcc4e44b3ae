#include <gtest/gtest.h>

#include "tests/transformer/families/published_case.h"

namespace trireme::test_gpt_oss {
namespace {

using test::expect_round_trip;
using test::published_problem;
using test::PublishedConfig;

std::string published() { return test::published_file("gpt-oss-20b"); }

TEST(Families, GptOssAsPublished) {
  const PublishedConfig got = test::read_valid(published());
  EXPECT_TRUE(got.notes.empty());
  const ModelConfig& c = got.config;
  EXPECT_TRUE(c.attention_sinks && c.attention_bias && c.attention_output_bias);
  EXPECT_EQ(c.window(0), 128);
  EXPECT_EQ(c.window(1), 0);
  EXPECT_EQ(c.clamped_gate, (ClampedGate{.limit = 7, .slope = 1.702, .up_offset = 1}));
  EXPECT_EQ(c.moe.experts, 32);
  EXPECT_EQ(c.moe.experts_per_token, 4);
  EXPECT_EQ(c.moe.intermediate_size, 2880);
  EXPECT_TRUE(c.moe.expert_bias && c.moe.router_bias && c.moe.normalize_weights);
  EXPECT_FALSE(c.moe.sigmoid_scores);
  EXPECT_EQ(c.rope_scaling.factor, 32);
  EXPECT_FALSE(c.rope_scaling.truncate);
  expect_round_trip(c);
}

// transformers scales the positions of a file without rope_scaling.
TEST(Families, GptOssWithoutScaling) {
  const auto scaling = [](const std::string& changes) {
    return test::read_valid(published(), changes).config.rope_scaling;
  };
  const RopeScaling preset = scaling("");
  EXPECT_EQ(scaling(R"("rope_scaling": null)"), preset);
  // One without a type is "default" there.
  EXPECT_EQ(scaling(R"("rope_scaling": null, "rope_parameters": {"rope_theta": 150000})"),
            RopeScaling{});
  EXPECT_EQ(published_problem(published(), R"("rope_scaling": null, "rope_theta": 1)"),
            "model.rope_theta: 1 is not above 1, as rope_type yarn needs");
  const ModelConfig plain =
      test::read_valid(published(), R"("rope_scaling": {"rope_type": "default"})").config;
  EXPECT_EQ(plain.rope_scaling, RopeScaling{});
  expect_round_trip(plain);
}

TEST(Families, WhatGptOssCannotBe) {
  EXPECT_EQ(published_problem(published(), R"("swiglu_limit": 0)"),
            "model.swiglu_limit: must be above 0, got 0");
  EXPECT_EQ(published_problem(published(), R"("layer_types": ["full_attention"])"),
            "model.layer_types: must be a list of 24 words, one for each layer, got "
            "[\"full_attention\"]");
  EXPECT_EQ(
      published_problem(published(), R"("num_experts_per_tok": 33)"),
      "model.num_experts_per_tok: 33 is more than the 32 experts that a token may choose from");
}

}  // namespace
}  // namespace trireme::test_gpt_oss
