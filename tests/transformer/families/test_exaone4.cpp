#include <gtest/gtest.h>

#include <cmath>

#include "tests/transformer/families/published_case.h"

namespace trireme::test_exaone4 {
namespace {

using test::expect_round_trip;
using test::published_problem;
using test::PublishedConfig;

TEST(Families, Exaone4AsPublished) {
  const PublishedConfig got = test::read_valid(test::published_file("exaone-4.0-32b"));
  const ModelConfig& c = got.config;
  EXPECT_TRUE(c.post_norms && c.qk_norm);
  EXPECT_FALSE(c.pre_norms || c.qk_norm_whole);
  EXPECT_EQ(c.window(0), 4096);
  EXPECT_TRUE(c.rotates(0));
  EXPECT_EQ(c.window(3), 0);
  EXPECT_FALSE(c.rotates(3));
  EXPECT_EQ(c.rope_scaling.type, RopeType::kLlama3);
  expect_round_trip(c);
}

// As in the smaller model: without windows every layer is rotated.
TEST(Families, Exaone4WithoutWindows) {
  const char* const model = R"({"model_type": "exaone4", "hidden_size": 32,
      "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 44,
      "num_hidden_layers": 4})";
  const PublishedConfig none = test::read_published(model, R"("sliding_window": null)");
  ASSERT_TRUE(none.errors.empty()) << none.errors[0];
  EXPECT_FALSE(none.config.has_windows());
  EXPECT_TRUE(none.config.rotates(3));
  expect_round_trip(none.config);
  const PublishedConfig third = test::read_published(model, R"("sliding_window_pattern": 3)");
  ASSERT_TRUE(third.errors.empty()) << third.errors[0];
  EXPECT_EQ(third.config.windows, (std::vector<int64_t>{4096, 4096, 0, 4096}));
  EXPECT_EQ(published_problem(model, R"("sliding_window_pattern": "LLLG")"),
            "model.sliding_window_pattern: is \"LLLG\", expected a number of layers, or "
            "layer_types");
  EXPECT_NE(published_problem(model, R"("sliding_window_pattern": 18446744073709551615)")
                .find("expected a number of layers"),
            std::string::npos);
  // A window that no layer has: no layer is rotated.
  const PublishedConfig full = test::read_published(model, R"("sliding_window_pattern": 1)");
  ASSERT_TRUE(full.errors.empty()) << full.errors[0];
  EXPECT_EQ(full.config.rope_layers, (std::vector<uint8_t>{0, 0, 0, 0}));
  expect_round_trip(full.config);
}

TEST(Families, Ernie45AsPublished) {
  const PublishedConfig got = test::read_valid(test::published_file("ernie-4.5-0.3b"));
  const ModelConfig& c = got.config;
  EXPECT_TRUE(c.rope_interleaved && c.tie_word_embeddings);
  EXPECT_FALSE(c.attention_bias || c.mlp_bias);
  expect_round_trip(c);
  const PublishedConfig biased =
      test::read_published(test::published_file("ernie-4.5-0.3b"), R"("use_bias": true)");
  EXPECT_TRUE(biased.config.attention_bias && biased.config.attention_output_bias &&
              biased.config.mlp_bias);
}

TEST(Families, HunyuanAsPublished) {
  const PublishedConfig got = test::read_valid(test::published_file("hunyuan-7b"));
  const ModelConfig& c = got.config;
  EXPECT_TRUE(c.qk_norm && c.qk_norm_after_rope && c.tie_word_embeddings);
  EXPECT_EQ(c.rope_scaling.type, RopeType::kDefault);
  EXPECT_DOUBLE_EQ(c.rope_theta, 10000 * std::pow(1000, 128.0 / 126));
  expect_round_trip(c);
  EXPECT_EQ(published_problem(test::published_file("hunyuan-7b"), R"("use_cla": true)"),
            "model.use_cla: true is not available in this version (keys and values shared with "
            "other layers); only false is");
}

}  // namespace
}  // namespace trireme::test_exaone4
