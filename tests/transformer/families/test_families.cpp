// Published configurations, and the messages about them.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/config/parse.h"
#include "transformer/families/config_json.h"
#include "transformer/formats/hf/hf_source.h"
#include "transformer/model/model.h"

namespace trireme::test_families {
namespace {

struct Read {
  ModelConfig config;
  std::vector<std::string> errors, notes;
};

Read read(const std::string& text, const std::string& more = "") {
  Json json = parse_json(text, "test");
  json.update(parse_json("{" + more + "}", "test"));
  ConfigReport report;
  Read out;
  out.config = read_model_config(json, "model", report);
  out.errors = report.errors();
  out.notes = report.notes();
  return out;
}

std::string problem(const std::string& text, const std::string& more) {
  const Read got = read(text, more);
  return got.errors.size() == 1 ? got.errors[0] : concat(got.errors.size(), " errors");
}

void expect_round_trip(const ModelConfig& config) {
  ConfigReport report;
  EXPECT_EQ(read_model_config(model_config_to_json(config), "model", report), config);
  EXPECT_TRUE(report.ok());
}

constexpr const char* kDeepseekV2Lite = R"({"architectures": ["DeepseekV2ForCausalLM"],
  "attention_bias": false, "attention_dropout": 0.0, "aux_loss_alpha": 0.001, "bos_token_id": 100000,
  "eos_token_id": 100001, "ep_size": 1, "first_k_dense_replace": 1, "hidden_act": "silu",
  "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 10944, "kv_lora_rank": 512,
  "max_position_embeddings": 163840, "model_type": "deepseek_v2", "moe_intermediate_size": 1408,
  "moe_layer_freq": 1, "n_group": 1, "n_routed_experts": 64, "n_shared_experts": 2,
  "norm_topk_prob": false, "num_attention_heads": 16, "num_experts_per_tok": 6,
  "num_hidden_layers": 27, "num_key_value_heads": 16, "pretraining_tp": 1, "q_lora_rank": null,
  "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06, "rope_scaling": {
    "beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 0.707, "mscale_all_dim": 0.707,
    "original_max_position_embeddings": 4096, "type": "yarn"}, "rope_theta": 10000,
  "routed_scaling_factor": 1.0, "scoring_func": "softmax", "seq_aux": true,
  "tie_word_embeddings": false, "topk_group": 1, "topk_method": "greedy", "torch_dtype": "bfloat16",
  "use_cache": true, "v_head_dim": 128, "vocab_size": 102400})";

constexpr const char* kDeepseekV3 = R"({"architectures": ["DeepseekV3ForCausalLM"],
  "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 0, "eos_token_id": 1, "ep_size": 1,
  "first_k_dense_replace": 3, "hidden_act": "silu", "hidden_size": 7168, "initializer_range": 0.02,
  "intermediate_size": 18432, "kv_lora_rank": 512, "max_position_embeddings": 163840,
  "model_type": "deepseek_v3", "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_group": 8,
  "n_routed_experts": 256, "n_shared_experts": 1, "norm_topk_prob": true, "num_attention_heads": 128,
  "num_experts_per_tok": 8, "num_hidden_layers": 61, "num_key_value_heads": 128,
  "num_nextn_predict_layers": 1, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
  "rms_norm_eps": 1e-06, "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0,
    "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096, "type": "yarn"},
  "rope_theta": 10000, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid",
  "tie_word_embeddings": false, "topk_group": 4, "topk_method": "noaux_tc", "torch_dtype": "bfloat16",
  "use_cache": true, "v_head_dim": 128, "vocab_size": 129280})";

TEST(Families, DeepseekV2LiteAsPublished) {
  const Read got = read(kDeepseekV2Lite);
  ASSERT_TRUE(got.errors.empty()) << got.errors[0];
  const ModelConfig& c = got.config;
  EXPECT_EQ(c.latent, (LatentConfig{0, 512, 128, 64, 128}));
  EXPECT_EQ(c.head_dim, 192);
  EXPECT_TRUE(c.rope_interleaved);
  // Both m of YaRN are equal, so that the table's factor is 1 and the softmax scale has both.
  const double m = 0.1 * 0.707 * std::log(40.0) + 1;
  EXPECT_NEAR(c.attention_scale, m * m / std::sqrt(192.0), 1e-12);
  EXPECT_FALSE(c.moe.sigmoid_scores || c.moe.selection_bias || c.moe.normalise_weights);
  EXPECT_EQ(c.moe.shared_intermediate_size, 2816);
  EXPECT_EQ(c.moe.balance_coef, 0.001);
  EXPECT_EQ(parameter_count(c), 15706484224);
  expect_round_trip(c);
}

TEST(Families, DeepseekV3AsPublished) {
  const Read got = read(kDeepseekV3);
  ASSERT_TRUE(got.errors.empty()) << got.errors[0];
  const ModelConfig& c = got.config;
  EXPECT_EQ(c.latent, (LatentConfig{1536, 512, 128, 64, 128}));
  EXPECT_TRUE(c.moe.sigmoid_scores && c.moe.selection_bias && c.moe.normalise_weights);
  EXPECT_EQ(c.moe.groups, 8);
  EXPECT_EQ(c.moe.kept_groups, 4);
  EXPECT_EQ(c.moe.weight_scale, 2.5);
  EXPECT_EQ(c.moe.balance_coef, 0) << "transformers has no such loss";
  EXPECT_FALSE(c.moe.sparse(2));
  EXPECT_TRUE(c.moe.sparse(3));
  ASSERT_EQ(got.notes.size(), 1u);
  EXPECT_EQ(got.notes[0],
            "model.num_nextn_predict_layers: the 1 layers after layer 60, which predict tokens "
            "after the next, are left out");
  EXPECT_TRUE(hf_tensor_is_ignored(c, "model.layers.61.eh_proj.weight"));
  EXPECT_FALSE(hf_tensor_is_ignored(c, "model.layers.62.eh_proj.weight"));
  EXPECT_FALSE(hf_tensor_is_ignored(c, "model.layers.6.mlp.gate.weight"));
  EXPECT_NEAR(static_cast<double>(parameter_count(c)), 671.03e9, 0.01e9);
  expect_round_trip(c);
}

TEST(Families, WhatDeepseekCannotBe) {
  EXPECT_EQ(problem(kDeepseekV2Lite, R"("norm_topk_prob": true)").substr(0, 36),
            "model.norm_topk_prob: must be false:");
  EXPECT_EQ(problem(kDeepseekV2Lite, R"("topk_method": "group_limited_greedy", "n_group": null)"),
            "model.n_group: is required with topk_method group_limited_greedy");
  EXPECT_EQ(problem(kDeepseekV2Lite, R"("v_head_dim": 193)"),
            "model.v_head_dim: 193 is more than the width of a key, 192 (qk_nope_head_dim + "
            "qk_rope_head_dim); such models are not built");
  EXPECT_EQ(problem(kDeepseekV3, R"("num_key_value_heads": 8)"),
            "model.num_key_value_heads: must be num_attention_heads 128, got 8: every head has its "
            "own keys and values");
  EXPECT_EQ(problem(kDeepseekV3, R"("qk_rope_head_dim": 63)"),
            "model.qk_rope_head_dim: must be even: positions rotate pairs; got 63");
  EXPECT_EQ(problem(kDeepseekV3, R"("n_group": 7)"),
            "model.n_group: 7 does not divide n_routed_experts 256");
  EXPECT_NE(problem(kDeepseekV3, R"("scoring_func": "softmax")").find("sigmoid"),
            std::string::npos);
}

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
  const Read got = read(kGemma3);
  ASSERT_TRUE(got.errors.empty()) << got.errors[0];
  const ModelConfig& c = got.config;
  EXPECT_TRUE(c.tie_word_embeddings && c.unit_norms && c.branch_norms && c.gelu_gate && c.qk_norm);
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

TEST(Families, WhatGemma3CannotBe) {
  EXPECT_EQ(problem(kGemma3, R"("final_logit_softcapping": 30.0)"),
            "model.final_logit_softcapping: 30.0 is not available in this version");
  EXPECT_EQ(problem(kGemma3, R"("use_bidirectional_attention": true)"),
            "model.use_bidirectional_attention: true is not available in this version; only false "
            "is");
  EXPECT_EQ(problem(kGemma3, R"("rope_scaling": {"rope_type": "linear"})"),
            "model.rope_scaling.factor: is required by rope_type linear");
}

// The larger models are multimodal: their text part is a separate model.
TEST(Families, TheTextPartOfGemma3) {
  const Read got = read(R"({"architectures": ["Gemma3ForConditionalGeneration"],
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
  bool told = false;
  for (const std::string& note : got.notes) told |= note.find("text_config") != std::string::npos;
  EXPECT_TRUE(told);
  expect_round_trip(c);
  EXPECT_EQ(problem(R"({"model_type": "gemma3", "vision_config": {}})", ""),
            "model.text_config: is required: the text model of a gemma3");
}

}  // namespace
}  // namespace trireme::test_families
