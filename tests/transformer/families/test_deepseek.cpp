#include <gtest/gtest.h>

#include "tests/transformer/families/published_case.h"

namespace trireme::test_deepseek {
namespace {

using test::kDeepseekV2Lite;
using test::kDeepseekV3;
using test::published_problem;

TEST(Families, WhatDeepseekCannotBe) {
  EXPECT_EQ(published_problem(kDeepseekV2Lite, R"("norm_topk_prob": true)").substr(0, 36),
            "model.norm_topk_prob: must be false:");
  EXPECT_EQ(published_problem(kDeepseekV2Lite,
                              R"("topk_method": "group_limited_greedy", "n_group": null)"),
            "model.n_group: is required with topk_method group_limited_greedy");
  EXPECT_EQ(published_problem(kDeepseekV2Lite, R"("v_head_dim": 193)"),
            "model.v_head_dim: 193 is more than the width of a key, 192 (qk_nope_head_dim + "
            "qk_rope_head_dim); such models are not supported");
  EXPECT_EQ(published_problem(kDeepseekV3, R"("num_key_value_heads": 8)"),
            "model.num_key_value_heads: must be num_attention_heads 128, got 8: every head has its "
            "own keys and values");
  EXPECT_EQ(published_problem(kDeepseekV3, R"("qk_rope_head_dim": 63)"),
            "model.qk_rope_head_dim: must be even: the rotary embedding rotates pairs; got 63");
  EXPECT_EQ(published_problem(kDeepseekV3, R"("n_group": 7)"),
            "model.n_group: 7 does not divide n_routed_experts 256");
  EXPECT_NE(published_problem(kDeepseekV3, R"("scoring_func": "softmax")").find("sigmoid"),
            std::string::npos);
}

}  // namespace
}  // namespace trireme::test_deepseek
