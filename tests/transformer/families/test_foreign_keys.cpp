// Keys of config.json that change what a model computes, or that are unknown: each is read, has no
// effect with its value, or is refused by name.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/config/parse.h"
#include "engine/core/error.h"
#include "tests/support/scratch_directory.h"
#include "transformer/families/family.h"
#include "transformer/families/foreign_keys.h"
#include "transformer/formats/load_config.h"

namespace trireme::test_foreign_keys {
namespace {

Json model(const std::string& type) {
  if (type == "gpt2")
    return parse_json(R"({"model_type": "gpt2", "vocab_size": 99, "n_positions": 64, "n_embd": 32,
                          "n_layer": 2, "n_head": 4})",
                      type);
  Json json = parse_json(R"({"vocab_size": 99, "hidden_size": 32, "intermediate_size": 44,
                             "num_hidden_layers": 2, "num_attention_heads": 4,
                             "num_key_value_heads": 4})",
                         type);
  json["model_type"] = type;
  return json;
}

struct Loaded {
  ModelConfig config;
  std::string error;
  std::vector<std::string> notes;
};

// Loads it as a third-party config.json.
Loaded load(const std::string& type, const std::string& more) {
  Json json = model(type);
  json.update(parse_json("{" + more + "}", "more"));
  const test::ScratchDirectory dir;
  std::ofstream(dir / "config.json") << json.dump();
  Loaded loaded;
  try {
    loaded.config = load_model_config(dir.path(), loaded.notes);
  } catch (const InputError& e) {
    loaded.error = std::string(e.what()).substr((dir / "config.json").size());
  }
  return loaded;
}

// It makes every decoder of transformers 5 bidirectional.
TEST(ForeignKeys, NoFamilyAttendsToLaterTokens) {
  for (const Family* family : families()) {
    EXPECT_EQ(load(family->model_type, R"("is_causal": false)").error,
              ": is_causal: false is not available in this version (attention to later tokens); "
              "only true is")
        << family->model_type;
    EXPECT_EQ(load(family->model_type, R"("is_causal": true)").error, "") << family->model_type;
  }
}

TEST(ForeignKeys, OtherMathematicsIsRefusedByName) {
  const std::pair<const char*, const char*> wrong[] = {
      {"per_layer_config", R"({"0": {"sliding_window": 4}})"},
      {"no_rope_layers", "[1, 0]"},
      {"no_rope_layer_interval", "4"},
      {"use_qk_norm", "true"},
      {"qk_norm", "true"},
      {"qk_layernorm", "true"},
      {"query_pre_attn_scalar", "144"},
      {"attention_scale", "0.5"},
      {"attn_scale", "0.1"},
      {"softmax_scale", "0.5"},
      {"norm_type", "\"layer_norm\""},
      {"sandwich_norm", "true"},
      {"use_post_norm", "true"},
      {"attention_chunk_size", "16"},
      {"attn_temperature_tuning", "true"},
      {"llama_4_scaling_beta", "0.1"},
      {"lm_head_multiplier", "0.5"},
      {"key_multiplier", "0.5"},
      {"mup_multiplier", "2"},
      {"scale_emb", "12"},
      {"scale_depth", "1.4"},
      {"embed_scale", "5.6"},
      {"swiglu_limit", "7.0"},
      {"layer_types", R"(["sliding_attention", "full_attention"])"},
      {"use_attention_sinks", "true"},
      {"attn_output_gate", "true"},
      {"rope_interleaved", "true"},
      {"partial_rotary_factor", "0.5"},
      {"quantization", R"({"bits": 4, "group_size": 64})"},
      {"tomorrows_multiplier", "0.5"},
      {"tomorrows_switch", "false"},
      {"tomorrows_word", "\"new\""}};
  for (const auto& [key, value] : wrong) {
    const std::string error = load("llama", concat("\"", key, "\": ", value)).error;
    EXPECT_NE(error.find(key), std::string::npos) << key << error;
    EXPECT_EQ(load("llama", concat("\"", key, "\": null")).error, "") << key;
  }
  EXPECT_EQ(
      load("llama", R"("tomorrows_multiplier": 0.5)").error,
      ": \"tomorrows_multiplier\": unknown key (value 0.5), which may change the model's output; "
      "remove it from the file if it does not (docs/reference/model-keys.md lists the known "
      "keys)");
  EXPECT_EQ(load("llama", R"("rope_scaling": {"rope_type": "linear", "factor": 2, "odd": 1})")
                .error.substr(0, 43),
            ": \"rope_scaling.odd\": unknown key (value 1)");
}

TEST(ForeignKeys, NeutralValuesPass) {
  const Loaded plain = load("llama", "");
  const Loaded got =
      load("llama", R"("use_qk_norm": false, "no_rope_layers": [], "norm_type": "rms_norm",
      "logit_scale": 1.0, "num_experts": 0, "layer_types": ["full_attention", "full_attention"],
      "position_embedding_type": "rope", "mup_multiplier": 1, "use_rope": true, "attn_pdrop": 0.0,
      "transformers.js_config": {"dtype": "q4"}, "model_max_length": 7, "unheard_of": null,
      "architectures": ["LlamaForCausalLM"], "use_flash_attention_2": true)");
  EXPECT_EQ(got.error, "");
  EXPECT_EQ(got.config, plain.config);
  ASSERT_EQ(got.notes.size(), 1U);
  EXPECT_NE(got.notes[0].find("with the value null: \"unheard_of\""), std::string::npos);
  // A key of another architecture in one family may be regular in another one.
  EXPECT_EQ(load("qwen3", R"("use_qk_norm": true)").error, "");
  EXPECT_NE(load("qwen3", R"("use_qk_norm": false)").error, "");
  EXPECT_EQ(load("gemma3_text", R"("use_post_norm": true, "query_pre_attn_scalar": 144)").error,
            "");
  EXPECT_EQ(load("mistral", R"("sliding_window": 8,
                               "layer_types": ["sliding_attention", "sliding_attention"])")
                .error,
            "");
  EXPECT_EQ(load("qwen3_moe", R"("use_qk_norm": true, "qkv_bias": false, "max_window_layers": 48,
                                 "shared_expert_intermediate_size": 0)")
                .error,
            "");
}

// Another architecture's weights under a model_type that fits them.
TEST(ForeignKeys, ArchitecturesAreTheFamilys) {
  for (const char* name : {"SmolLM3ForCausalLM", "Ernie4_5ForCausalLM", "LlamaBidirectionalModel",
                           "LlamaForCausalLMEagle", "MistralForCausalLM"})
    EXPECT_EQ(load("llama", concat(R"("architectures": [")", name, "\"]")).error,
              concat(": architectures: [\"", name,
                     "\"] is not of model_type \"llama\", whose class is LlamaForCausalLM: the "
                     "model may compute something else; if it does not, name that class"));
  for (const char* names : {"null", "[]", R"(["LlamaModel"])", R"(["LLaMAForCausalLM"])",
                            R"(["Other", "LlamaForSequenceClassification"])"})
    EXPECT_EQ(load("llama", concat(R"("architectures": )", names)).error, "") << names;
  EXPECT_NE(load("qwen2", R"("architectures": ["Qwen2MoeForCausalLM"])").error, "");
  EXPECT_EQ(load("gpt2", R"("architectures": ["GPT2DoubleHeadsModel"])").error, "");
  for (const Family* family : families())
    EXPECT_EQ(
        load(family->model_type, concat(R"("architectures": [")", family->architecture, "\"]"))
            .error,
        "");
}

TEST(ForeignKeys, NullAndForeignTokenIdsAreTransformers) {
  const Loaded ids = load("llama", R"("bos_token_id": -1, "eos_token_id": [99, 5])");
  EXPECT_EQ(ids.error, "");
  EXPECT_EQ(ids.config.bos_token_id, -1);
  EXPECT_EQ(ids.config.eos_token_id, 5);
  ASSERT_EQ(ids.notes.size(), 2U);
  EXPECT_NE(ids.notes[0].find("bos_token_id: -1 is outside the vocabulary"), std::string::npos);
  EXPECT_EQ(load("llama", R"("attention_dropout": null)").config.attention_dropout, 0);
  const Loaded v3 = load("deepseek_v3", R"("rope_interleave": null, "norm_topk_prob": null)");
  EXPECT_EQ(v3.error, "");
  EXPECT_FALSE(v3.config.rope_interleaved || v3.config.moe.normalize_weights) << "null is false";
}

// The code of DeepSeek-MoE and of Kimi K2 normalizes where top_k > 1; transformers' deepseek_v3
// always does.
TEST(ForeignKeys, OneExpertKeepsItsWeightInDeepseek) {
  const auto normalizes = [](const char* type, const char* experts) {
    return load(type, concat(R"("norm_topk_prob": true, "num_experts_per_tok": )", experts))
        .config.moe.normalize_weights;
  };
  EXPECT_FALSE(normalizes("deepseek", "1"));
  EXPECT_TRUE(normalizes("deepseek", "2"));
  EXPECT_TRUE(normalizes("deepseek_v3", "1"));
  const auto kimi = [](const char* experts) {
    return load("kimi_k2", concat(R"("num_experts_per_tok": )", experts))
        .config.moe.normalize_weights;
  };
  EXPECT_TRUE(kimi("8"));
  EXPECT_FALSE(kimi("1"));
}

TEST(ForeignKeys, GemmasOlderNames) {
  const std::string error =
      load("gemma3_text", R"("rope_scaling": {"type": "linear", "factor": 8})").error;
  EXPECT_NE(error.find("rope_scaling.type: \"linear\" without rope_type"), std::string::npos)
      << error;
  for (const char* scaling : {R"({"type": "linear", "rope_type": "linear", "factor": 8})",
                              R"({"rope_type": "linear", "factor": 8})"})
    EXPECT_EQ(
        load("gemma3_text", concat(R"("rope_scaling": )", scaling)).config.rope_scaling.factor, 8);
  EXPECT_EQ(load("gemma3_text",
                 R"("rope_parameters": {"full_attention": {"type": "linear", "factor": 8}})")
                .config.rope_scaling.factor,
            8);
  const Loaded pattern =
      load("gemma3_text", R"("sliding_window_pattern": 2, "_sliding_window_pattern": 6)");
  EXPECT_EQ(pattern.error, "");
  EXPECT_EQ(pattern.config.windows, (std::vector<int64_t>{4096, 0}));
}

}  // namespace
}  // namespace trireme::test_foreign_keys
