#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/config/parse.h"
#include "engine/core/error.h"
#include "tests/support/scratch_directory.h"
#include "tests/transformer/families/config_case.h"
#include "transformer/families/config_json.h"
#include "transformer/families/family.h"
#include "transformer/families/other_families.h"
#include "transformer/formats/load_config.h"
#include "transformer/formats/stop_token_ids.h"

namespace trireme::test_config_json {
namespace {

using test::llama_json;
using test::model_problem;
using test::read_model;

Json gpt2(const std::string& more = "") {
  return parse_json(
      R"({"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_embd": 768,
                       "n_layer": 12, "n_head": 12)" +
          more + "}",
      "gpt2");
}

TEST(ModelConfig, Gpt2HasHuggingFacesDefaults) {
  const ModelConfig config = read_model(gpt2());
  EXPECT_EQ(config.family, ModelFamily::kGpt2);
  EXPECT_EQ(config.intermediate_size, 3072);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(config.num_kv_heads, 12);
  EXPECT_EQ(config.residual_dropout, 0.1);
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_TRUE(config.attention_bias);
  EXPECT_TRUE(config.mlp_bias);
  EXPECT_EQ(config.eos_token_id, 50256);
}

TEST(ModelConfig, LlamaHasHuggingFacesDefaults) {
  const ModelConfig config = read_model(llama_json());
  EXPECT_EQ(config.family, ModelFamily::kLlama);
  EXPECT_EQ(config.num_kv_heads, 4);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.max_positions, 2048);
  EXPECT_EQ(config.norm_eps, 1e-6);
  EXPECT_EQ(config.rope_theta, 10000.0);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_FALSE(config.attention_bias);
  EXPECT_EQ(config.bos_token_id, 1);
  EXPECT_EQ(config.eos_token_id, 2);
}

// The form of files written by transformers, with all keys that have no effect here.
TEST(ModelConfig, ReadsWhatHubDirectoriesHold) {
  const ModelConfig tiny =
      read_model(llama_json(R"(, "architectures": ["LlamaForCausalLM"], "pad_token_id": 0,
      "torch_dtype": "bfloat16", "transformers_version": "4.41.0", "use_cache": true,
      "pretraining_tp": 1, "rope_scaling": null, "hidden_act": "silu", "num_key_value_heads": 2,
      "eos_token_id": [128, 129], "head_dim": 32, "rope_theta": 5e5, "quantization_config": null)"));
  EXPECT_EQ(tiny.num_kv_heads, 2);
  EXPECT_EQ(tiny.head_dim, 32);
  EXPECT_EQ(tiny.rope_theta, 500000.0);
  EXPECT_EQ(tiny.eos_token_id, 128);
  const ModelConfig small = read_model(gpt2(R"(, "n_ctx": 1024, "summary_type": "cls_index",
      "task_specific_params": {"text-generation": {"do_sample": true}}, "n_inner": null,
      "reorder_and_upcast_attn": false, "scale_attn_weights": true)"));
  EXPECT_EQ(small.num_layers, 12);
  EXPECT_EQ(
      read_model(llama_json(R"(, "rope_parameters": {"rope_type": "default", "rope_theta": 7.5})"))
          .rope_theta,
      7.5);
  EXPECT_EQ(read_model(parse_json(R"({"model_type": "gpt2", "vocab_size": 100, "hidden_size": 8,
      "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 4})",
                                  "t"))
                .hidden_size,
            8);
}

TEST(ModelConfig, WhatWouldChangeTheMathematicsIsRefused) {
  const std::string not_here = " is not available in this version";
  EXPECT_EQ(model_problem(llama_json(R"(, "rope_scaling": {"type": "ntk", "factor": 2.0})")),
            "model.rope_scaling.type: \"ntk\"" + not_here +
                "; use default, linear, dynamic, llama3, yarn, longrope");
  EXPECT_EQ(model_problem(llama_json(R"(, "rope_parameters": {"partial_rotary_factor": 0.5})")),
            "model.rope_parameters.partial_rotary_factor: 0.5" + not_here +
                " (rotary on a part of the head); only 1 is");
  EXPECT_EQ(model_problem(llama_json(R"(, "sliding_window": 4096)")),
            "model.sliding_window: 4096" + not_here + " (sliding-window attention)");
  EXPECT_EQ(model_problem(llama_json(R"(, "hidden_act": "gelu")")),
            "model.hidden_act: \"gelu\"" + not_here + "; use silu");
  EXPECT_EQ(model_problem(llama_json(R"(, "num_local_experts": 8)")),
            "model.num_local_experts: 8" + not_here +
                " (mixture of experts in a dense family); only 0 or 1 is");
  EXPECT_EQ(model_problem(llama_json(R"(, "quantization_config": {"bits": 4})")),
            "model.quantization_config: {\"bits\":4}" + not_here +
                " (quantized weights in a run's configuration; a directory's are read)");
  EXPECT_EQ(model_problem(gpt2(R"(, "activation_function": "relu")")),
            "model.activation_function: \"relu\"" + not_here + "; use gelu_new, gelu_pytorch_tanh");
  EXPECT_EQ(model_problem(gpt2(R"(, "scale_attn_by_inverse_layer_idx": true)")),
            "model.scale_attn_by_inverse_layer_idx: true" + not_here +
                " (attention scaled by 1/layer); only false is");
  EXPECT_EQ(model_problem(gpt2(R"(, "scale_attn_weights": false)")),
            "model.scale_attn_weights: false" + not_here +
                " (attention without the factor 1/sqrt(head_dim)); only true is");
  EXPECT_EQ(model_problem(gpt2(R"(, "add_cross_attention": true)")),
            "model.add_cross_attention: true" + not_here + " (cross attention); only false is");
  EXPECT_EQ(model_problem(parse_json(R"({"model_type": "mamba"})", "t")),
            "model.model_type: \"mamba\"" + not_here +
                "; only gpt2, llama, mistral, qwen2, qwen3, mixtral, qwen2_moe, qwen3_moe, "
                "deepseek, deepseek_v2, deepseek_v3, gemma3_text, kimi_k2, "
                "smollm3, granite, olmo2, olmo3, seed_oss, glm, glm4, glm4_moe, minimax_m2, phi3, "
                "ministral3, ernie4_5, exaone4, hunyuan_v1_dense, gpt_oss, "
                "granitemoe, gemma2 and llama4_text are");
}

TEST(ModelConfig, AFamilyThatIsNotImplementedIsRefusedWithItsFeatures) {
  const auto names = [](const char* json, const std::string& part) {
    return model_problem(parse_json(json, "t")).find(part) != std::string::npos;
  };
  EXPECT_TRUE(names(R"({"model_type": "lfm2"})",
                    "model.model_type: \"lfm2\" is not available in this version (unlike llama, it "
                    "has short gated convolutions in place of attention in some layers); only "
                    "gpt2, "));
  EXPECT_TRUE(names(R"({"model_type": "llava", "text_config": {"model_type": "mistral4"}})",
                    " (unlike llama, its text model \"mistral4\" has latent attention with "));
  for (const Family* family : families())
    EXPECT_EQ(other_family_features(family->model_type), nullptr)
        << family->model_type << " is implemented: transformer/families/other_families.cpp";
}

TEST(ModelConfig, AnUnknownFamilyNamesTheNearest) {
  const auto nearest = [](const std::string& type) {
    const std::string message =
        model_problem(parse_json(concat("{\"model_type\": \"", type, "\"}"), "t"));
    const size_t at = message.find("; nearest names: ");
    return at == std::string::npos ? "" : message.substr(at + 17);
  };
  EXPECT_EQ(nearest("lama"), "llama");
  EXPECT_EQ(nearest("qwen3_next"), "qwen3_moe, qwen3");
  EXPECT_EQ(nearest("gemma_2"), "gemma3_text, gemma2");
  EXPECT_EQ(nearest("deepseek_v4"), "deepseek_v2, deepseek_v3");
  EXPECT_EQ(nearest("ministral"), "ministral3");
  EXPECT_EQ(nearest("bert"), "");
  EXPECT_EQ(nearest(std::string(100000, 'q')), "");
}

// Both spellings; older files with the new one contain the type twice.
TEST(ModelConfig, RopeScalingIsRead) {
  const auto scaling = [](const std::string& more) {
    ConfigReport report;
    const ModelConfig config = read_model_config(llama_json(more), "model", report);
    EXPECT_TRUE(report.ok() && report.notes().empty()) << more;
    return config;
  };
  EXPECT_EQ(scaling(R"(, "rope_scaling": null)").rope_scaling, RopeScaling{});
  const RopeScaling linear{.type = RopeType::kLinear, .factor = 2.5};
  for (const char* keys : {R"(, "rope_scaling": {"type": "linear", "factor": 2.5})",
                           R"(, "rope_scaling": {"rope_type": "linear", "factor": 2.5})",
                           R"(, "rope_scaling": {"rope_type": "linear", "type": "linear",
                                                 "factor": 2.5})",
                           R"(, "rope_parameters": {"rope_type": "linear", "factor": 2.5})"})
    EXPECT_EQ(scaling(keys).rope_scaling, linear) << keys;
  EXPECT_EQ(scaling(R"(, "rope_parameters": {"rope_type": "default", "rope_theta": 5})").rope_theta,
            5);
  const RopeScaling llama3 =
      scaling(R"(, "rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
                 "high_freq_factor": 4, "original_max_position_embeddings": 1024})")
          .rope_scaling;
  EXPECT_EQ(llama3, (RopeScaling{.type = RopeType::kLlama3,
                                 .factor = 8,
                                 .original_positions = 1024,
                                 .low_frequency_factor = 1,
                                 .high_frequency_factor = 4}));
  const RopeScaling yarn = scaling(R"(, "rope_scaling": {"rope_type": "yarn", "factor": null,
      "original_max_position_embeddings": 512, "beta_fast": 16, "truncate": false,
      "attention_factor": 1.5})")
                               .rope_scaling;
  EXPECT_EQ(yarn.factor, 4);  // 2048 positions over 512
  EXPECT_EQ(yarn.beta_fast, 16);
  EXPECT_EQ(yarn.beta_slow, 1);
  EXPECT_EQ(yarn.attention_factor, 1.5);
  EXPECT_FALSE(yarn.truncate);
}

TEST(ModelConfig, RopeScalingMustMakeSense) {
  const auto wrong = [](const std::string& keys) {
    return model_problem(llama_json(concat(R"(, "rope_scaling": {)", keys, "}")));
  };
  EXPECT_EQ(wrong(R"("type": "dynamic")"),
            "model.rope_scaling.factor: is required by rope_type dynamic");
  EXPECT_EQ(wrong(R"("type": "yarn")"), "model.rope_scaling.factor: is required by rope_type yarn");
  EXPECT_EQ(wrong(R"("rope_type": "yarn", "type": "linear", "factor": 2)"),
            "model.rope_scaling.type: \"linear\" differs from rope_type \"yarn\"");
  EXPECT_EQ(wrong(R"("type": "linear", "factor": 0.5)"),
            "model.rope_scaling.factor: must be at least 1, got 0.5");
  EXPECT_EQ(wrong(R"("type": "llama3", "factor": 2, "low_freq_factor": 4, "high_freq_factor": 3)"),
            "model.rope_scaling.low_freq_factor: 4 is above high_freq_factor 3");
}

Json of_type(const std::string& type, const std::string& more) {
  Json json = llama_json(more);
  json["model_type"] = type;
  return json;
}

TEST(ModelConfig, WindowsAreOfTheLayersThatTransformersGivesThem) {
  const auto windows = [](const std::string& type, const std::string& more) {
    ConfigReport report;
    const ModelConfig config = read_model_config(
        of_type(type, concat(R"(, "num_key_value_heads": 2)", more)), "model", report);
    EXPECT_TRUE(report.ok()) << type << more;
    return config.windows;
  };
  using Windows = std::vector<int64_t>;
  EXPECT_EQ(windows("mistral", R"(, "sliding_window": 7)"), (Windows{7, 7}));
  EXPECT_EQ(windows("mistral", R"(, "sliding_window": null)"), Windows{});
  EXPECT_EQ(windows("mistral", ""), (Windows{4096, 4096}));
  for (const char* type : {"qwen2", "qwen3"}) {
    EXPECT_EQ(windows(type, R"(, "sliding_window": 7, "max_window_layers": 1)"), Windows{});
    const char* on = R"(, "use_sliding_window": true, "sliding_window": 7)";
    EXPECT_EQ(windows(type, concat(on, R"(, "max_window_layers": 1)")), (Windows{0, 7}));
    EXPECT_EQ(windows(type, concat(on, R"(, "max_window_layers": 2)")), Windows{});
    EXPECT_EQ(windows(type, concat(on, R"(, "layer_types": ["sliding_attention",
                                                           "full_attention"])")),
              (Windows{7, 0}));
  }
  EXPECT_EQ(model_problem(of_type("qwen2", R"(, "num_key_value_heads": 2,
                                        "layer_types": ["full_attention"])")),
            "model.layer_types: must be a list of 2 words, one for each layer, got "
            "[\"full_attention\"]");
  EXPECT_EQ(model_problem(of_type("qwen3", R"(, "num_key_value_heads": 2,
                                        "layer_types": ["full_attention", "sliding_attention"])")),
            "model.layer_types: \"sliding_attention\" needs use_sliding_window and sliding_window");
}

// transformers fails with such a window, or makes no token visible; where no layer has it, it has
// no effect there either.
TEST(ModelConfig, AWindowOfNoTokenIsRefusedWhereALayerHasIt) {
  const auto said = [](const char* type, const std::string& more) {
    return model_problem(
        of_type(type, concat(R"(, "num_key_value_heads": 2, "sliding_window": 0)", more)));
  };
  const std::string refused =
      "model.sliding_window: 0 is a window in which a token attends to none";
  for (const char* type : {"mistral", "mixtral"}) EXPECT_TRUE(said(type, "").starts_with(refused));
  const std::string on = R"(, "use_sliding_window": true)";
  for (const char* type : {"qwen2", "qwen3", "qwen2_moe", "qwen3_moe"}) {
    EXPECT_EQ(said(type, ""), "") << type;
    EXPECT_TRUE(said(type, on + R"(, "max_window_layers": 1)").starts_with(refused)) << type;
  }
  EXPECT_EQ(said("qwen2", on + R"(, "max_window_layers": 2)"), "");
  EXPECT_TRUE(said("qwen3", on + R"(, "layer_types": ["full_attention", "sliding_attention"])")
                  .find(refused) != std::string::npos);
  const std::string gemma = R"(, "head_dim": 4)";
  EXPECT_TRUE(said("gemma3_text", gemma).starts_with(refused)) << said("gemma3_text", gemma);
  EXPECT_EQ(said("gemma3_text", gemma + R"(, "layer_types": ["full_attention", "full_attention"])"),
            "");
}

TEST(ModelConfig, QwensDifferInBiasesAndNorms) {
  ConfigReport report;
  const auto read = [&](const char* type) {
    return read_model_config(of_type(type, R"(, "num_key_value_heads": 2)"), "model", report);
  };
  const ModelConfig two = read("qwen2"), three = read("qwen3");
  EXPECT_TRUE(report.ok());
  EXPECT_TRUE(two.attention_bias && !two.attention_output_bias && !two.qk_norm);
  EXPECT_TRUE(!three.attention_bias && three.qk_norm);
  EXPECT_EQ(two.head_dim, 16);
  EXPECT_EQ(three.head_dim, 128);  // default of transformers
}

TEST(ModelConfig, SizesMustFit) {
  EXPECT_EQ(model_problem(gpt2(R"(, "n_inner": 0)")), "model.n_inner: must be at least 1, got 0");
  EXPECT_EQ(model_problem(llama_json(R"(, "num_key_value_heads": 3)")),
            "model.num_key_value_heads: 3 does not divide num_attention_heads 4");
  EXPECT_EQ(model_problem(llama_json(R"(, "head_dim": 15)")),
            "model.head_dim: gives heads of width 15; the rotary embedding needs an even width");
  Json odd = llama_json();
  odd["hidden_size"] = 60;
  EXPECT_EQ(model_problem(odd),
            "model.num_attention_heads: gives heads of width 15; the rotary embedding "
            "needs an even width");
  odd["hidden_size"] = 62;
  EXPECT_EQ(model_problem(odd), "model.num_attention_heads: 4 does not divide hidden_size 62");
  Json heads = gpt2();
  heads["n_head"] = 11;
  EXPECT_EQ(model_problem(heads), "model.n_head: 11 does not divide n_embd 768");
  EXPECT_EQ(model_problem(gpt2(R"(, "resid_pdrop": 1.0)")),
            "model.resid_pdrop: must be at least 0 and below 1, got 1.0");
  EXPECT_EQ(model_problem(llama_json(R"(, "rms_norm_eps": 0)")),
            "model.rms_norm_eps: must be above 0 and at most 1, got 0");
  EXPECT_EQ(
      model_problem(llama_json(R"(, "eos_token_id": [1, 2.5])")),
      "model.eos_token_id: must be null, a token id below vocab_size 32000 or a list of such, "
      "got [1,2.5]");
  EXPECT_EQ(
      model_problem(llama_json(R"(, "bos_token_id": "<s>")")),
      "model.bos_token_id: must be null, a token id below vocab_size 32000 or a list of such, "
      "got \"<s>\"");
  Json huge = llama_json();
  huge["vocab_size"] = 1e300;
  EXPECT_EQ(model_problem(huge), "model.vocab_size: must be an integer, got 1e+300");
  huge["vocab_size"] = 3000000000;
  EXPECT_EQ(model_problem(huge),
            "model.vocab_size: must be at least 1 and at most 2147483647, got 3000000000");
}

TEST(ModelConfig, MissingAndUnknownKeys) {
  EXPECT_EQ(
      model_problem(parse_json("{}", "t")),
      "model.model_type: is required: gpt2, llama, mistral, qwen2, qwen3, mixtral, "
      "qwen2_moe, qwen3_moe, deepseek, deepseek_v2, "
      "deepseek_v3, gemma3_text, kimi_k2, smollm3, granite, olmo2, olmo3, seed_oss, glm, glm4, "
      "glm4_moe, minimax_m2, phi3, ministral3, ernie4_5, exaone4, hunyuan_v1_dense, gpt_oss, "
      "granitemoe, gemma2 or llama4_text");
  EXPECT_EQ(model_problem(parse_json("[]", "t")), "model: must be an object, got []");
  EXPECT_EQ(model_problem(parse_json(R"({"model_type": 3})", "t")),
            "model.model_type: must be a string, got 3");
  Json missing = llama_json();
  missing.erase("hidden_size");
  EXPECT_EQ(model_problem(missing), "model.hidden_size: is required: width of the residual stream");
  EXPECT_EQ(model_problem(gpt2(R"(, "n_hed": 12)")),
            "model.n_hed: unknown key; did you mean \"n_head\"?");
  EXPECT_EQ(model_problem(gpt2(R"(, "hidden_size": 769)")),
            "model.hidden_size: means the same as model.n_embd, which is 768; keep one");
  EXPECT_EQ(model_problem(gpt2(R"(, "hidden_size": 768)")), "");
  // HuggingFace's default ids belong to its default vocabulary, so that a smaller one has none.
  Json bytes = gpt2();
  bytes["vocab_size"] = 257;
  EXPECT_EQ(read_model(bytes).eos_token_id, -1);
}

TEST(ModelConfig, RoundTrips) {
  for (const Json& json :
       {gpt2(), gpt2(R"(, "n_inner": 100, "attn_pdrop": 0, "tie_word_embeddings": false,
                        "bos_token_id": null, "layer_norm_epsilon": 1e-6)"),
        llama_json(),
        llama_json(R"(, "num_key_value_heads": 1, "head_dim": 20, "attention_bias": true,
                          "mlp_bias": true, "attention_dropout": 0.25, "rope_theta": 123.5,
                          "tie_word_embeddings": true, "initializer_range": 0.006)")}) {
    const ModelConfig config = read_model(json);
    const Json written = model_config_to_json(config);
    EXPECT_EQ(read_model(written), config);
    EXPECT_EQ(read_model(parse_json(written.dump(2), "t")), config);
  }
}

TEST(ModelConfig, LoadsFilesAndDirectories) {
  const test::ScratchDirectory scratch;
  const std::string file = scratch / "config.json";
  std::ofstream(file) << llama_json().dump();
  std::vector<std::string> notes;
  EXPECT_EQ(load_model_config(file, notes), read_model(llama_json()));
  EXPECT_EQ(load_model_config(scratch.path(), notes), read_model(llama_json()));
  EXPECT_TRUE(notes.empty());
  // null is ignored in a third-party config.json; files with another name are ours.
  std::ofstream(file) << llama_json(R"(, "hiden_act": null, "some.program": null,
                                  "quantization_config": {"bits": 4},
                                  "rope_scaling": {"odd": null}, "eos_token_id": 5)")
                             .dump();
  std::ofstream(scratch / "generation_config.json") << R"({"eos_token_id": [7, 5, 9], "top_k": 3})";
  EXPECT_EQ(load_model_config(scratch.path(), notes),
            read_model(llama_json(R"(, "eos_token_id": 5)")));
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_EQ(notes[0], file +
                          ": ignoring unknown keys with the value null: "
                          "\"hiden_act\", "
                          "\"some.program\", \"rope_scaling.odd\"");
  EXPECT_EQ(stop_token_ids(scratch.path(), 32000), (std::vector<int32_t>{5, 7, 9}));
  EXPECT_EQ(stop_token_ids(scratch.path(), 8), (std::vector<int32_t>{5, 7})) << "9 is none";
  EXPECT_EQ(tokenizer_stop_token_ids(scratch / "tokenizer.json", 8), (std::vector<int32_t>{5, 7}));
  EXPECT_TRUE(tokenizer_stop_token_ids("byte", 8).empty());
  std::filesystem::copy(file, scratch / "model.json");
  try {
    load_model_config(scratch / "model.json", notes);
    FAIL();
  } catch (const InputError& e) {
    EXPECT_NE(std::string(e.what()).find("hiden_act: unknown key; did you mean \"hidden_act\"?"),
              std::string::npos);
  }
  std::ofstream(file) << llama_json(R"(, "odd": null, "rope_interleaved": true)").dump();
  try {
    load_model_config(scratch.path(), notes);
    FAIL() << "it changes the mathematics";
  } catch (const InputError& e) {
    EXPECT_EQ(e.what(),
              file +
                  ": rope_interleaved: true is not available in this version (rotary positions of "
                  "neighbouring elements); only false is");
  }
}

TEST(ModelConfig, EveryKeyHasHelp) {
  for (const Family* family : families())
    for (const Key& key : model_schema(family->id).keys())
      EXPECT_GE(key.help.size(), 5u) << key.path;
}

}  // namespace
}  // namespace trireme::test_config_json
