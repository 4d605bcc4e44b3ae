#include <gtest/gtest.h>

#include "tests/transformer/families/published_case.h"

namespace trireme::test_glm {
namespace {

using test::expect_round_trip;
using test::published_problem;
using test::PublishedConfig;
using test::read_published;

std::string published(const char* name) { return test::published_file(name); }

TEST(Families, GlmAsPublished) {
  const PublishedConfig got = test::read_valid(published("glm-4-9b"));
  EXPECT_TRUE(got.notes.empty());
  const ModelConfig& c = got.config;
  EXPECT_EQ(c.rotary_dim, 64);
  EXPECT_EQ(c.head_dim, 128);
  EXPECT_TRUE(c.rope_interleaved && c.attention_bias);
  EXPECT_FALSE(c.attention_output_bias || c.post_norms || c.qk_norm);
  EXPECT_EQ(c.eos_token_id, 151329);
  expect_round_trip(c);
}

TEST(Families, Glm4HasNormsAfterItsBranches) {
  const PublishedConfig got =
      read_published(published("glm-4-9b"), R"("model_type": "glm4", "architectures": null)");
  ASSERT_TRUE(got.errors.empty()) << got.errors[0];
  EXPECT_TRUE(got.config.post_norms && got.config.pre_norms && got.config.rope_interleaved);
  expect_round_trip(got.config);
}

TEST(Families, Glm45AsPublished) {
  const PublishedConfig got = test::read_valid(published("glm-4.5"));
  EXPECT_EQ(got.notes.size(), 1);  // the layer for multi-token prediction
  const ModelConfig& c = got.config;
  EXPECT_EQ(c.rotary_dim, 64);
  EXPECT_TRUE(c.qk_norm && c.attention_bias);
  EXPECT_FALSE(c.rope_interleaved || c.attention_output_bias || c.qk_norm_whole);
  EXPECT_EQ(c.moe.experts, 160);
  EXPECT_EQ(c.moe.first_sparse, 3);
  EXPECT_EQ(c.moe.shared_intermediate_size, 1536);
  EXPECT_TRUE(c.moe.sigmoid_scores && c.moe.selection_bias && c.moe.normalize_weights);
  EXPECT_EQ(c.moe.weight_scale, 2.5);
  EXPECT_EQ(c.extra_layers, 1);
  expect_round_trip(c);
}

// Rounded down as transformers does, and refused where a pair would be cut.
TEST(Families, APartOfTheHeadIsRotated) {
  for (const auto& [factor, width] : {std::pair{"0.3", 38}, {"0.75", 96}, {"0.02", 2}})
    for (const char* where : {R"("partial_rotary_factor": )",
                              R"("partial_rotary_factor": null, "rope_parameters": {
                                  "rope_type": "default", "partial_rotary_factor": )"}) {
      const std::string end = std::string(where).find('{') == std::string::npos ? "" : "}";
      const PublishedConfig got = read_published(published("glm-4-9b"), concat(where, factor, end));
      ASSERT_TRUE(got.errors.empty()) << got.errors[0];
      EXPECT_EQ(got.config.rotary_dim, width);
      expect_round_trip(got.config);
    }
  for (const char* whole : {"1", "null"}) {
    const ModelConfig c =
        read_published(published("glm-4-9b"), concat(R"("partial_rotary_factor": )", whole)).config;
    EXPECT_EQ(c.rotary_dim, 0);
    expect_round_trip(c);
  }
  EXPECT_EQ(published_problem(published("glm-4-9b"), R"("partial_rotary_factor": 0.29)"),
            "model.partial_rotary_factor: 0.29 of heads of width 128 rotates 37 elements, expected "
            "an even number of at least 2");
  EXPECT_EQ(published_problem(published("glm-4-9b"), R"("partial_rotary_factor": 1.5)"),
            "model.partial_rotary_factor: must be above 0 and at most 1, got 1.5");
}

}  // namespace
}  // namespace trireme::test_glm
