#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/config/parse.h"
#include "engine/core/error.h"
#include "tests/transformer/families/config_case.h"
#include "transformer/config/moe_config.h"
#include "transformer/families/config_json.h"

namespace trireme::test_moe_config {
namespace {

using test::llama_json;
using test::model_problem;
using test::read_model;

Json moe(const std::string& type, const std::string& more = "") {
  return parse_json(concat(R"({"model_type": ")", type, R"(", "vocab_size": 1000, "hidden_size": 64,
      "intermediate_size": 96, "num_hidden_layers": 6, "num_attention_heads": 4,
      "num_key_value_heads": 2)",
                           more, "}"),
                    type);
}

TEST(MoeConfig, FamiliesHaveHuggingFacesDefaults) {
  const ModelConfig mixtral = read_model(moe("mixtral"));
  EXPECT_EQ(mixtral.family, ModelFamily::kMixtral);
  // Absent: transformers' default; null: as many as heads.
  const auto kv_heads = [](const char* type, bool null) {
    Json json = moe(type);
    json["num_attention_heads"] = 32;
    json["hidden_size"] = 512;
    json.erase("num_key_value_heads");
    if (null) json["num_key_value_heads"] = nullptr;
    return read_model(json).num_kv_heads;
  };
  EXPECT_EQ(kv_heads("mixtral", false), 8);
  EXPECT_EQ(kv_heads("qwen2_moe", false), 16);
  EXPECT_EQ(kv_heads("mixtral", true), 32);
  EXPECT_EQ(mixtral.moe.experts, 8);
  EXPECT_EQ(mixtral.moe.experts_per_token, 2);
  EXPECT_EQ(mixtral.moe.intermediate_size, 96);
  EXPECT_TRUE(mixtral.moe.normalize_weights);
  EXPECT_FALSE(mixtral.moe.sigmoid_scores);
  EXPECT_EQ(mixtral.moe.balance_coef, 0.001);
  EXPECT_EQ(mixtral.rope_theta, 1e6);
  EXPECT_EQ(mixtral.norm_eps, 1e-5);
  EXPECT_FALSE(mixtral.attention_bias);

  const ModelConfig qwen = read_model(moe("qwen2_moe"));
  EXPECT_EQ(qwen.moe.experts, 60);
  EXPECT_EQ(qwen.moe.experts_per_token, 4);
  EXPECT_EQ(qwen.moe.intermediate_size, 1408);
  EXPECT_EQ(qwen.moe.shared_intermediate_size, 5632);
  EXPECT_TRUE(qwen.moe.shared_gate);
  EXPECT_FALSE(qwen.moe.normalize_weights);
  EXPECT_TRUE(qwen.attention_bias);
  EXPECT_FALSE(qwen.attention_output_bias);

  const ModelConfig dense = read_model(llama_json());
  EXPECT_EQ(dense.moe, MoeConfig());
  EXPECT_FALSE(dense.moe.sparse(0));
}

TEST(MoeConfig, SparseLayersAreThoseOfTheFamily) {
  const auto layers = [](const ModelConfig& config) {
    std::string out;
    for (int64_t l = 0; l < config.num_layers; ++l) out += config.moe.sparse(l) ? 's' : 'd';
    return out;
  };
  EXPECT_EQ(layers(read_model(moe("mixtral"))), "ssssss");
  EXPECT_EQ(layers(read_model(moe("qwen2_moe", R"(, "decoder_sparse_step": 2)"))), "dsdsds");
  EXPECT_EQ(layers(read_model(moe("qwen2_moe", R"(, "mlp_only_layers": [0, 4])"))), "dsssds");
  EXPECT_EQ(layers(read_model(moe("deepseek", R"(, "first_k_dense_replace": 1)"))), "dsssss");
  EXPECT_EQ(layers(read_model(moe("deepseek", R"(, "moe_layer_freq": 3)"))), "sddsdd");
}

TEST(MoeConfig, DeepSeekRoutingIsReadAndWritten) {
  const ModelConfig config =
      read_model(moe("deepseek", R"(, "n_routed_experts": 16, "n_shared_experts": 2,
      "num_experts_per_tok": 4, "moe_intermediate_size": 24, "scoring_func": "sigmoid",
      "topk_method": "noaux_tc", "n_group": 4, "topk_group": 2, "routed_scaling_factor": 2.5,
      "norm_topk_prob": true, "aux_loss_alpha": 0.0001, "seq_aux": true,
      "router_bias_update_speed": 0.001, "router_z_loss_coef": 0.01, "expert_capacity_factor": 1.5,
      "router_aux_loss_scope": "global")"));
  EXPECT_TRUE(config.moe.sigmoid_scores);
  EXPECT_TRUE(config.moe.selection_bias);
  EXPECT_EQ(config.moe.groups, 4);
  EXPECT_EQ(config.moe.kept_groups, 2);
  EXPECT_EQ(config.moe.weight_scale, 2.5);
  EXPECT_EQ(config.moe.shared_intermediate_size, 48);
  EXPECT_FALSE(config.moe.shared_gate);
  EXPECT_EQ(config.moe.balance_scope, BalanceScope::kGlobal);
  EXPECT_EQ(config.moe.capacity_factor, 1.5);
  for (const char* type : {"mixtral", "qwen2_moe", "deepseek"}) {
    const ModelConfig one =
        read_model(moe(type, R"(, "noisy_gating": true, "router_load_loss_coef": 0.5,
        "router_importance_loss_coef": 0.25, "router_bias_update_speed": 0.5)"));
    EXPECT_EQ(read_model(model_config_to_json(one)), one) << type;
  }
  EXPECT_EQ(read_model(model_config_to_json(config)), config);
}

TEST(MoeConfig, WhatDoesNotFitIsNamed) {
  EXPECT_EQ(
      model_problem(moe("deepseek", R"(, "kv_lora_rank": 512)")),
      "model.kv_lora_rank: 512 is not available in this version (multi-head latent attention)");
  EXPECT_EQ(model_problem(moe("mixtral", R"(, "num_local_experts": 4, "num_experts_per_tok": 5)")),
            "model.num_experts_per_tok: 5 is more than the 4 experts that a token may choose from");
  EXPECT_EQ(
      model_problem(moe("deepseek", R"(, "n_group": 7, "topk_method": "group_limited_greedy")")),
      "model.n_group: 7 does not divide n_routed_experts 60");
  EXPECT_EQ(model_problem(moe("mixtral", R"(, "router_load_loss_coef": 0.1)")),
            "model.router_load_loss_coef: needs noisy_gating: the load is a probability under its "
            "noise");
  EXPECT_NE(model_problem(moe("mixtral", R"(, "router_jitter_noise": 0.1)")), "");
  EXPECT_EQ(model_problem(moe("qwen2_moe", R"(, "mlp_only_layers": [-1])")),
            "model.mlp_only_layers: must hold layer numbers, got -1");
}

}  // namespace
}  // namespace trireme::test_moe_config
