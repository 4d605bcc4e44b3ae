#include <gtest/gtest.h>

#include "tests/transformer/families/published_case.h"

namespace trireme::test_minimax_m2 {
namespace {

using test::expect_round_trip;
using test::published_problem;
using test::PublishedConfig;

std::string published() { return test::published_file("minimax-m2.5"); }

TEST(Families, MiniMaxM2AsPublished) {
  const PublishedConfig got = test::read_valid(published());
  ASSERT_EQ(got.notes.size(), 1);  // the layers for multi-token prediction
  const ModelConfig& c = got.config;
  EXPECT_EQ(c.rotary_dim, 64);
  EXPECT_TRUE(c.qk_norm && c.qk_norm_whole && c.pre_norms);
  EXPECT_EQ(c.moe.experts, 256);
  EXPECT_EQ(c.moe.intermediate_size, 1536);
  EXPECT_TRUE(c.moe.sigmoid_scores && c.moe.selection_bias && c.moe.normalize_weights);
  EXPECT_EQ(c.moe.shared_intermediate_size, 0);
  EXPECT_EQ(c.rope_theta, 5000000);
  EXPECT_EQ(c.extra_layers, 3);
  expect_round_trip(c);
}

TEST(Families, WhatMiniMaxM2CannotBe) {
  EXPECT_EQ(published_problem(published(), R"("use_routing_bias": false)"),
            "model.use_routing_bias: false is not available in this version (a choice of experts "
            "without a bias); only true is");
  EXPECT_EQ(published_problem(published(), R"("shared_intermediate_size": 1536)"),
            "model.shared_intermediate_size: 1536 is not available in this version (shared "
            "experts); only 0 is");
  EXPECT_EQ(published_problem(published(), R"("rotary_dim": 63)"),
            "model.rotary_dim: 63 is not an even number of at least 2 and at most head_dim 128");
  EXPECT_EQ(published_problem(published(), R"("partial_rotary_factor": 0.25)"),
            "model.rotary_dim: 64 is not the part 0.25 of head_dim 128 that partial_rotary_factor "
            "names");
}

}  // namespace
}  // namespace trireme::test_minimax_m2
