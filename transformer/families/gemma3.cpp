// Gemma 3 (Gemma Team 2025, arXiv 2503.19786), text model: pre- and post-norms with 1 + w around
// attention and MLP, GeGLU, norms of the heads of q and k, layers with a sliding window and their
// own rotary frequencies between layers with full attention, a tied head, an embedding times
// sqrt(hidden_size).
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "transformer/families/common_keys.h"
#include "transformer/families/rope_keys.h"
#include "transformer/families/table.h"
#include "transformer/families/window_keys.h"

namespace trireme {
namespace {

void add_gemma3_keys(Schema& schema) {
  add_decoder_keys(schema, {.positions = "131072",
                            .bos = "2",
                            .eos = "1",
                            .kv_heads = "4",
                            .vocab = "262208",
                            .heads = "8",
                            .tied = true});
  add_head_dim(schema, "256");
  add_attention_bias(schema);
  schema
      .choice("hidden_activation", "gelu_pytorch_tanh", {"gelu_pytorch_tanh"},
              "the gate's activation: GELU's tanh form")
      .alias({"hidden_act"})
      .not_yet({"gelu", "silu", "relu"});
  schema.number("query_pre_attn_scalar", "256", "the softmax's scale is 1 / its square root")
      .above(0);
  add_pattern_window_keys(schema);
  add_layered_rope_keys(schema, "1000000", "10000");
}

void read_gemma3(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  read_decoder_keys(values, config, report);
  read_head_dim(values, config, report);
  read_attention_bias(values, config);
  config.gelu_gate = config.zero_centered_gamma = config.post_norms = true;
  config.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
  config.attention_scale = 1 / std::sqrt(values.number("query_pre_attn_scalar"));
  read_pattern_window_keys(values, config, report);
  read_layered_rope_keys(values, config, report);
}

void write_gemma3(const ModelConfig& config, Json& json) {
  write_decoder_keys(config, json);
  json["head_dim"] = config.head_dim;
  json["attention_bias"] = config.attention_bias;
  json["hidden_activation"] = "gelu_pytorch_tanh";
  // A whole number in every published model; the softmax scale is its rounded inverse root.
  const double scalar = 1 / (config.attention_scale * config.attention_scale);
  const double whole = std::round(scalar);
  json["query_pre_attn_scalar"] = 1 / std::sqrt(whole) == config.attention_scale
                                      ? Json(static_cast<int64_t>(whole))
                                      : Json(scalar);
  write_pattern_window_keys(config, json);
  write_layered_rope_keys(config, json);
}

}  // namespace

constinit const Family kGemma3Family = {
    .id = ModelFamily::kGemma3,
    .model_type = "gemma3_text",
    .architecture = "Gemma3ForCausalLM",
    .title = "Gemma 3 style model, its text part",
    .models = "Gemma 3, and the text part of `gemma3`",
    .special =
        "norms with 1 + w, before and after attention and MLP; GELU gates; normalised heads of q "
        "and k; windows and frequencies of their own in most layers; embedding times "
        "sqrt(hidden_size)",
    .refused = "soft caps of logits, attention to later tokens, images",
    .positions_key = "max_position_embeddings",
    .names = {.mlp_norm = "pre_feedforward_layernorm",
              .attention_post_norm = "post_attention_layernorm",
              .mlp_post_norm = "post_feedforward_layernorm"},
    .qk_norm = true,
    .layer_types = true,
    .begins_with_bos = true,
    .add_keys = add_gemma3_keys,
    .read = read_gemma3,
    .write = write_gemma3};

}  // namespace trireme
