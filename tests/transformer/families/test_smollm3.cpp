#include <gtest/gtest.h>

#include "tests/transformer/families/published_case.h"

namespace trireme::test_smollm3 {
namespace {

using test::expect_round_trip;
using test::published_problem;
using test::PublishedConfig;
using test::read_published;

// Four layers, without the keys of the tests.
constexpr const char* kFour = R"({"model_type": "smollm3", "vocab_size": 99, "hidden_size": 32,
  "intermediate_size": 44, "num_hidden_layers": 4, "num_attention_heads": 4,
  "num_key_value_heads": 2, "bos_token_id": null, "eos_token_id": null})";

ModelConfig four(const std::string& more) {
  const PublishedConfig got = read_published(kFour, more);
  EXPECT_TRUE(got.errors.empty()) << more << ": " << got.errors[0];
  expect_round_trip(got.config);
  return got.config;
}

using Layers = std::vector<uint8_t>;
using Windows = std::vector<int64_t>;

TEST(Families, SmolLm3AsPublished) {
  const PublishedConfig got = read_published(test::published_file("smollm3-3b"));
  ASSERT_TRUE(got.errors.empty()) << got.errors[0];
  EXPECT_TRUE(got.notes.empty());
  const ModelConfig& c = got.config;
  ASSERT_EQ(c.rope_layers.size(), 36U);
  for (int64_t l = 0; l < 36; ++l) EXPECT_EQ(c.rotates(l), l % 4 != 3) << l;
  EXPECT_FALSE(c.has_windows());
  EXPECT_TRUE(c.tie_word_embeddings);
  EXPECT_FALSE(c.attention_bias || c.mlp_bias);
  EXPECT_EQ(c.rope_theta, 5000000);
  EXPECT_EQ(c.head_dim, 128);
  expect_round_trip(c);
}

TEST(Families, SmolLm3sDefaultsAreTransformers) {
  const PublishedConfig got = read_published(
      R"({"model_type": "smollm3", "hidden_size": 2048, "intermediate_size": 11008,
          "num_hidden_layers": 36})");
  ASSERT_TRUE(got.errors.empty()) << got.errors[0];
  const ModelConfig& c = got.config;
  EXPECT_EQ(c.vocab_size, 128256);
  EXPECT_EQ(c.num_heads, 16);
  EXPECT_EQ(c.num_kv_heads, 4);
  EXPECT_EQ(c.max_positions, 32768);
  EXPECT_EQ(c.rope_theta, 2000000);
  EXPECT_EQ(c.norm_eps, 1e-6);
  EXPECT_EQ(c.bos_token_id, 128000);
  EXPECT_EQ(c.eos_token_id, 128001);
  EXPECT_TRUE(c.tie_word_embeddings);
  EXPECT_FALSE(c.rotates(3));
  EXPECT_FALSE(c.has_windows());
}

TEST(Families, SmolLm3sLayersWithoutPositions) {
  for (const char* keys :
       {"", R"("no_rope_layers": null)", R"("no_rope_layers": [])",
        R"("no_rope_layers": [1, 1, 1, 0])", R"("no_rope_layers": [true, true, true, false])",
        R"("no_rope_layers": [1, 1, 1, 0, 0], "no_rope_layer_interval": 2)"})
    EXPECT_EQ(four(keys).rope_layers, (Layers{1, 1, 1, 0})) << keys;
  EXPECT_EQ(four(R"("no_rope_layer_interval": 2)").rope_layers, (Layers{1, 0, 1, 0}));
  EXPECT_EQ(four(R"("no_rope_layer_interval": 1)").rope_layers, (Layers{0, 0, 0, 0}));
  EXPECT_TRUE(four(R"("no_rope_layer_interval": 5)").rope_layers.empty());
  EXPECT_TRUE(four(R"("no_rope_layers": [1, 1, 1, 1])").rope_layers.empty());
}

TEST(Families, SmolLm3sWindowsAreInTheLayersWithoutPositions) {
  const std::string on = R"("use_sliding_window": true, "sliding_window": 8)";
  EXPECT_EQ(four(on).windows, (Windows{0, 0, 0, 8}));
  EXPECT_EQ(four(on + R"(, "no_rope_layers": [0, 1, 0, 1], "max_window_layers": 28)").windows,
            (Windows{8, 0, 8, 0}));
  EXPECT_EQ(four(on + R"(, "layer_types": ["sliding_attention", "full_attention",
                                           "full_attention", "full_attention"])")
                .windows,
            (Windows{8, 0, 0, 0}));
  EXPECT_FALSE(four(R"("use_sliding_window": true)").has_windows()) << "no sliding_window: null";
  EXPECT_FALSE(four(R"("sliding_window": 8)").has_windows());
  EXPECT_FALSE(four(on + R"(, "no_rope_layers": [1, 1, 1, 1])").has_windows());
}

TEST(Families, WhatSmolLm3CannotBe) {
  const std::string list =
      "model.no_rope_layers: must be a list of at least 4 numbers 0 and 1, "
      "one for each layer, or null, got ";
  EXPECT_EQ(published_problem(kFour, R"("no_rope_layers": [1, 0])"), list + "[1,0]");
  EXPECT_EQ(published_problem(kFour, R"("no_rope_layers": [1, 0, 2, 1])"), list + "[1,0,2,1]");
  EXPECT_EQ(published_problem(kFour, R"("no_rope_layers": [1, 0, 0.0, 1])"), list + "[1,0,0.0,1]");
  EXPECT_EQ(published_problem(kFour, R"("no_rope_layers": 4)"), list + "4");
  EXPECT_EQ(published_problem(kFour, R"("no_rope_layer_interval": 0)"),
            "model.no_rope_layer_interval: must be at least 1, got 0");
  const std::string types =
      R"("layer_types": ["sliding_attention", "full_attention", "full_attention",
                         "full_attention"])";
  EXPECT_EQ(published_problem(kFour, R"("sliding_window": 8, )" + types),
            "model.layer_types: \"sliding_attention\" needs use_sliding_window and sliding_window");
  EXPECT_EQ(
      published_problem(kFour, R"("use_sliding_window": true, "sliding_window": 0)").substr(0, 23),
      "model.sliding_window: 0");
  EXPECT_EQ(
      published_problem(kFour, R"("use_qk_norm": true)"),
      "model.use_qk_norm: true is not available in this version (normalized heads of q and k, "
      "or none); only false is");
}

}  // namespace
}  // namespace trireme::test_smollm3
