#include "tests/transformer/families/published_case.h"

namespace trireme::test_llama4 {
namespace {

using test::expect_round_trip;
using test::published_problem;
using Layers = std::vector<uint8_t>;

ModelConfig scout(const std::string& text = "") {
  Json json = parse_json(test::published_file("llama-4-scout"), "test")["text_config"];
  json.update(parse_json("{" + text + "}", "test"));
  return test::read_valid(json.dump()).config;
}

// Four layers.
constexpr const char* kFour = R"({"model_type": "llama4_text", "vocab_size": 99, "hidden_size": 32,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "intermediate_size": 12, "intermediate_size_mlp": 44})";
ModelConfig four(const std::string& keys) { return test::read_valid(kFour, keys).config; }

TEST(Families, Llama4AsPublished) {
  const ModelConfig c = scout();
  EXPECT_TRUE(c.qk_norm && c.qk_norm_after_rope && c.qk_norm_weightless && c.rope_interleaved);
  EXPECT_EQ(c.attention_chunk, 8192);
  EXPECT_EQ(c.query_scaling, 0.1);
  EXPECT_EQ(c.unrotated_scaling, 8192);
  for (int64_t l = 0; l < c.num_layers; ++l) {
    EXPECT_EQ(c.rotates(l), l % 4 != 3) << l;
    EXPECT_EQ(c.chunked(l), l % 4 != 3) << l;
    EXPECT_TRUE(c.moe.sparse(l)) << l;
  }
  EXPECT_EQ(c.moe.experts, 16);
  EXPECT_EQ(c.moe.experts_per_token, 1);
  EXPECT_EQ(c.moe.intermediate_size, 8192);
  EXPECT_EQ(c.moe.shared_intermediate_size, 8192);
  EXPECT_EQ(c.intermediate_size, 16384);
  EXPECT_TRUE(c.moe.scaled_inputs && c.moe.choose_by_logits && c.moe.sigmoid_scores &&
              !c.moe.normalize_weights);
  expect_round_trip(c);
}

// Maverick has experts in every other layer, and no norms of q and k.
TEST(Families, Llama4WithDenseLayers) {
  const ModelConfig c = scout(R"("interleave_moe_layer_step": 2, "use_qk_norm": false)");
  EXPECT_FALSE(c.qk_norm || c.qk_norm_weightless);
  EXPECT_FALSE(c.moe.sparse(0));
  EXPECT_TRUE(c.moe.sparse(1));
  expect_round_trip(c);
  const ModelConfig listed = four(R"("moe_layers": [2, 0], "interleave_moe_layer_step": 3)");
  EXPECT_EQ(listed.moe.dense_layers, (std::vector<int64_t>{1, 3}));
  expect_round_trip(listed);
}

// Chunks are in the layers that rotate, unless layer_types says otherwise.
TEST(Families, Llama4Chunks) {
  EXPECT_EQ(four("").chunked_layers, (Layers{1, 1, 1, 0}));
  EXPECT_EQ(four(R"("no_rope_layer_interval": 2)").chunked_layers, (Layers{1, 0, 1, 0}));
  const ModelConfig listed = four(
      R"("layer_types": ["full_attention", "chunked_attention", "full_attention", "full_attention"],
         "attention_chunk_size": 6)");
  EXPECT_EQ(listed.chunked_layers, (Layers{0, 1, 0, 0}));
  EXPECT_EQ(listed.attention_chunk, 6);
  expect_round_trip(listed);
  const ModelConfig none = four(R"("attention_chunk_size": null)");
  EXPECT_EQ(none.attention_chunk, 0);
  EXPECT_TRUE(none.chunked_layers.empty());
  expect_round_trip(none);
  const ModelConfig still = four(R"("attn_temperature_tuning": false)");
  EXPECT_EQ(still.query_scaling, 0);
  EXPECT_EQ(still.unrotated_scaling, 0);
  expect_round_trip(still);
}

TEST(Families, WhatLlama4CannotBe) {
  const auto problem = [](const std::string& keys) { return published_problem(kFour, keys); };
  EXPECT_EQ(problem(R"("attention_chunk_size": 0)"),
            "model.attention_chunk_size: must be at least 1, got 0");
  EXPECT_EQ(problem(R"("layer_types": ["full_attention"])"),
            "model.layer_types: must be a list of 4 words, one for each layer, got "
            "[\"full_attention\"]");
  EXPECT_EQ(problem(R"("layer_types": ["full_attention", "full_attention", "full_attention",
                                       "sliding_attention"])"),
            "model.layer_types: must hold \"full_attention\" and \"chunked_attention\", got "
            "\"sliding_attention\"");
  EXPECT_EQ(problem(R"("attention_chunk_size": null, "layer_types": ["full_attention",
                       "full_attention", "full_attention", "chunked_attention"])"),
            "model.layer_types: \"chunked_attention\" needs attention_chunk_size");
  const std::string experts =
      ": must leave a layer with experts: a list of numbers from 0 to 3, or an interval up to 4";
  EXPECT_EQ(problem(R"("moe_layers": [])"), "model.moe_layers" + experts);
  EXPECT_EQ(problem(R"("moe_layers": [4])"), "model.moe_layers" + experts);
  EXPECT_EQ(problem(R"("interleave_moe_layer_step": 5)"),
            "model.interleave_moe_layer_step" + experts);
  EXPECT_EQ(problem(R"("floor_scale": 0)"), "model.floor_scale: must be at least 1, got 0");
}

}  // namespace
}  // namespace trireme::test_llama4
