#include <gtest/gtest.h>

#include <cmath>

#include "tests/transformer/families/published_case.h"

namespace trireme::test_gemma2 {
namespace {

using test::expect_round_trip;
using test::published_problem;
using test::PublishedConfig;

std::string published() { return test::published_file("gemma-2-9b"); }

TEST(Families, Gemma2AsPublished) {
  const PublishedConfig got = test::read_valid(published());
  EXPECT_TRUE(got.notes.empty());
  const ModelConfig& c = got.config;
  EXPECT_EQ(c.attention_soft_cap, 50);
  EXPECT_EQ(c.logits_soft_cap, 30);
  EXPECT_EQ(c.attention_scale, 1.0 / 16);
  EXPECT_EQ(c.embedding_scale, std::sqrt(3584.0));
  EXPECT_EQ(c.window(0), 4096);
  EXPECT_EQ(c.window(1), 0);
  EXPECT_TRUE(c.tie_word_embeddings && c.zero_centered_gamma && c.pre_norms && c.post_norms &&
              c.gelu_gate);
  EXPECT_FALSE(c.qk_norm);
  expect_round_trip(c);
}

TEST(Families, SoftCapsMayBeAbsent) {
  const ModelConfig c =
      test::read_valid(published(),
                       R"("attn_logit_softcapping": null, "final_logit_softcapping": null)")
          .config;
  EXPECT_EQ(c.attention_soft_cap, 0);
  EXPECT_EQ(c.logits_soft_cap, 0);
  expect_round_trip(c);
}

TEST(Families, WhatGemma2CannotBe) {
  EXPECT_EQ(published_problem(published(), R"("attn_logit_softcapping": 0)"),
            "model.attn_logit_softcapping: must be above 0, got 0");
  EXPECT_EQ(
      published_problem(published(), R"("use_bidirectional_attention": true)"),
      "model.use_bidirectional_attention: true is not available in this version (attention to "
      "later tokens); only false is");
}

}  // namespace
}  // namespace trireme::test_gemma2
