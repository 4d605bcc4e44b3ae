#include <gtest/gtest.h>

#include "tests/transformer/families/published_case.h"

namespace trireme::test_ministral3 {
namespace {

using test::expect_round_trip;
using test::published_problem;
using test::PublishedConfig;

TEST(Families, Ministral3AsPublished) {
  const PublishedConfig got = test::read_valid(test::published_file("ministral-3-3b"));
  ASSERT_EQ(got.notes.size(), 1);
  EXPECT_NE(got.notes[0].find("text_config"), std::string::npos);
  const ModelConfig& c = got.config;
  EXPECT_EQ(c.query_scaling, 0.1);
  EXPECT_EQ(c.rope_scaling.type, RopeType::kYarn);
  EXPECT_EQ(c.rope_scaling.original_positions, 16384);
  EXPECT_EQ(c.rope_theta, 1000000);
  EXPECT_EQ(rotary_tables(c), 2);
  EXPECT_TRUE(c.tie_word_embeddings);
  expect_round_trip(c);
}

TEST(Families, Mistral3MayHoldAMistral) {
  const PublishedConfig got = test::read_valid(R"({"model_type": "mistral3",
    "architectures": ["Mistral3ForConditionalGeneration"], "text_config": {"model_type": "mistral",
    "vocab_size": 99, "hidden_size": 32, "intermediate_size": 44, "num_hidden_layers": 2,
    "num_attention_heads": 8, "sliding_window": null}})");
  EXPECT_EQ(got.config.family, ModelFamily::kMistral);
  EXPECT_EQ(published_problem(R"({"model_type": "mistral3"})", ""),
            "model.text_config: is required: the text model of a mistral3");
}

TEST(Families, Ministral3ScalesByYarn) {
  const char* const model = R"({"model_type": "ministral3", "vocab_size": 99, "hidden_size": 32,
      "intermediate_size": 44, "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 4})";
  const ModelConfig c = test::read_valid(model).config;
  EXPECT_EQ(c.query_scaling, 0.1);
  EXPECT_EQ(c.rope_theta, 1000000);
  EXPECT_EQ(c.rope_scaling.original_positions, 16384);
  expect_round_trip(c);
  EXPECT_EQ(published_problem(model, R"("rope_theta": 100)"),
            "model.rope_theta: is not read without a rope_type in rope_parameters");
  EXPECT_EQ(published_problem(model, R"("rope_parameters": {"rope_type": "default"})"),
            "model.rope_parameters.rope_type: is not yarn, the type of this family");
}

}  // namespace
}  // namespace trireme::test_ministral3
