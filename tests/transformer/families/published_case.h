// Published model configurations, and the reader's errors and notes about them.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/config/parse.h"
#include "engine/core/error.h"
#include "tests/support/source_folder.h"
#include "transformer/families/config_json.h"

namespace trireme::test {

struct PublishedConfig {
  ModelConfig config;
  std::vector<std::string> errors, notes;
};

inline PublishedConfig read_published(const std::string& text, const std::string& more = "") {
  Json json = parse_json(text, "test");
  json.update(parse_json("{" + more + "}", "test"));
  ConfigReport report;
  PublishedConfig out;
  out.config = read_model_config(json, "model", report);
  out.errors = report.errors();
  out.notes = report.notes();
  return out;
}

// A published configuration that is read without an error.
inline PublishedConfig read_valid(const std::string& text, const std::string& more = "") {
  PublishedConfig got = read_published(text, more);
  EXPECT_TRUE(got.errors.empty()) << got.errors[0];
  return got;
}

inline std::string published_problem(const std::string& text, const std::string& more) {
  const PublishedConfig got = read_published(text, more);
  return got.errors.size() == 1 ? got.errors[0] : concat(got.errors.size(), " errors");
}

// A file of published/, without its quantization, which belongs to a directory.
inline std::string published_file(const std::string& name) {
  Json json = parse_json_file(
      concat(source_folder(), "/tests/transformer/families/published/", name, ".json"));
  json.erase("quantization_config");
  return json.dump();
}

inline void expect_round_trip(const ModelConfig& config) {
  ConfigReport report;
  EXPECT_EQ(read_model_config(model_config_to_json(config), "model", report), config);
  EXPECT_TRUE(report.ok());
}

inline constexpr const char* kDeepseekV2Lite = R"({"architectures": ["DeepseekV2ForCausalLM"],
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

inline constexpr const char* kDeepseekV3 = R"({"architectures": ["DeepseekV3ForCausalLM"],
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

}  // namespace trireme::test
