#include <gtest/gtest.h>

#include <cmath>

#include "tests/transformer/families/published_case.h"
#include "transformer/model/model.h"

namespace trireme::test_gemma3 {
namespace {

using test::expect_round_trip;
using test::published_problem;
using test::PublishedConfig;
using test::read_published;
using test::read_valid;

constexpr const char* kGemma3 = R"({"architectures": ["Gemma3ForCausalLM"], "attention_bias": false,
  "attention_dropout": 0.0, "attn_logit_softcapping": null, "bos_token_id": 2,
  "cache_implementation": "hybrid", "eos_token_id": 1, "final_logit_softcapping": null,
  "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152,
  "initializer_range": 0.02, "intermediate_size": 6912, "max_position_embeddings": 32768,
  "model_type": "gemma3_text", "num_attention_heads": 4, "num_hidden_layers": 26,
  "num_key_value_heads": 1, "pad_token_id": 0, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06,
  "rope_local_base_freq": 10000, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": 512,
  "sliding_window_pattern": 6, "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 262144})";

TEST(Families, Gemma3AsPublished) {
  const PublishedConfig got = read_valid(kGemma3);
  const ModelConfig& c = got.config;
  EXPECT_TRUE(c.tie_word_embeddings && c.zero_centered_gamma && c.post_norms && c.gelu_gate &&
              c.qk_norm);
  EXPECT_EQ(c.attention_scale, 1 / 16.0);
  EXPECT_EQ(c.embedding_scale, std::sqrt(1152.0));
  EXPECT_EQ(c.window(4), 512);
  EXPECT_EQ(c.window(5), 0);
  EXPECT_EQ(c.window(25), 512);
  EXPECT_EQ(c.local_rope_theta, 10000);
  EXPECT_EQ(rotary_tables(c), 2);
  EXPECT_EQ(parameter_count(c), 999885952);
  expect_round_trip(c);
}

TEST(Families, Gemma3MayHaveASoftCapOfLogits) {
  const PublishedConfig got = read_published(kGemma3, R"("final_logit_softcapping": 30.0)");
  EXPECT_TRUE(got.errors.empty());
  EXPECT_EQ(got.config.logits_soft_cap, 30);
  expect_round_trip(got.config);
}

TEST(Families, WhatGemma3CannotBe) {
  EXPECT_EQ(published_problem(kGemma3, R"("attn_logit_softcapping": 30.0)"),
            "model.attn_logit_softcapping: 30.0 is not available in this version (attention logits "
            "capped by tanh)");
  EXPECT_EQ(
      published_problem(kGemma3, R"("use_bidirectional_attention": true)"),
      "model.use_bidirectional_attention: true is not available in this version (attention to "
      "later tokens); only false is");
  EXPECT_EQ(published_problem(kGemma3, R"("rope_scaling": {"rope_type": "linear"})"),
            "model.rope_scaling.factor: is required by rope_type linear");
}

// The larger models are multimodal: their text part is a separate model.
TEST(Families, TheTextPartOfGemma3) {
  const PublishedConfig got =
      read_published(R"({"architectures": ["Gemma3ForConditionalGeneration"],
    "boi_token_index": 255999, "eoi_token_index": 256000, "eos_token_id": [1, 106],
    "image_token_index": 262144, "initializer_range": 0.02, "mm_tokens_per_image": 256,
    "model_type": "gemma3", "text_config": {"hidden_size": 2560, "intermediate_size": 10240,
      "model_type": "gemma3_text", "num_hidden_layers": 34,
      "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024},
    "torch_dtype": "bfloat16", "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27}})");
  ASSERT_TRUE(got.errors.empty()) << got.errors[0];
  const ModelConfig& c = got.config;
  EXPECT_EQ(c.vocab_size, 262208);
  EXPECT_EQ(c.num_heads, 8);
  EXPECT_EQ(c.num_kv_heads, 4);
  EXPECT_EQ(c.head_dim, 256);
  EXPECT_EQ(c.rope_scaling.factor, 8.0);
  EXPECT_EQ(c.eos_token_id, 1);
  // max_position_embeddings already includes the factor of 8.
  EXPECT_EQ(longest_sequence(c), 131072);
  EXPECT_NEAR(static_cast<double>(parameter_count(c)), 3.88e9, 0.005e9);
  bool noted = false;
  for (const std::string& note : got.notes) noted |= note.find("text_config") != std::string::npos;
  EXPECT_TRUE(noted);
  expect_round_trip(c);
  EXPECT_EQ(published_problem(R"({"model_type": "gemma3", "vision_config": {}})", ""),
            "model.text_config: is required: the text model of a gemma3");
}

}  // namespace
}  // namespace trireme::test_gemma3
