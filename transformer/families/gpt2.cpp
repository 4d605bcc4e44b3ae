// GPT-2 (Radford et al. 2019): LayerNorm, learned positions, GELU, biases everywhere.
#include <nlohmann/json.hpp>

#include "transformer/families/common_keys.h"
#include "transformer/families/table.h"

namespace trireme {
namespace {

void add_sizes(Schema& schema) {
  schema.integer("n_layer", "", "transformer blocks")
      .required()
      .at_least(1)
      .at_most(kMaxLayers)
      .alias({"num_hidden_layers"});
  schema.integer("n_embd", "", "width of the residual stream")
      .required()
      .at_least(1)
      .at_most(kMaxWidth)
      .alias({"hidden_size"});
  schema.integer("n_head", "", "attention heads; divides n_embd")
      .required()
      .at_least(1)
      .at_most(kMaxWidth)
      .alias({"num_attention_heads"});
  schema.integer("n_positions", "", "longest sequence: rows of the position embedding")
      .required()
      .at_least(1)
      .at_most(kMaxPositions)
      .alias({"max_position_embeddings"});
  schema.integer("n_inner", "null", "width of the MLP; null: 4 x n_embd")
      .or_null()
      .at_least(1)
      .at_most(4 * kMaxWidth);
}

void add_gpt2_keys(Schema& schema) {
  add_sizes(schema);
  schema.number("layer_norm_epsilon", "1e-05", "added to the variance in LayerNorm")
      .above(0)
      .at_most(1);
  schema.number("resid_pdrop", "0.1", "dropout after attention and MLP").at_least(0).below(1);
  schema.number("embd_pdrop", "0.1", "dropout after the embeddings").at_least(0).below(1);
  schema.number("attn_pdrop", "0.1", "dropout of attention probabilities").at_least(0).below(1);
  schema.boolean("tie_word_embeddings", true, "the head uses the token embedding's weights");
  schema.any("bos_token_id", "50256", "token id", "token id that begins a text").or_null();
  schema
      .any("eos_token_id", "50256", "token id or list of such",
           "token id that ends a text, or a list of such")
      .or_null();
  schema
      .choice("activation_function", "gelu_new", {"gelu_new", "gelu_pytorch_tanh"},
              "the MLP's activation; both words name GELU's tanh form")
      .not_yet({"gelu", "relu", "silu", "quick_gelu", "gelu_fast"});
  add_common_keys(schema);
  schema.unavailable("scale_attn_weights", {"true"},
                     "attention without the factor 1/sqrt(head_dim)");
  schema.unavailable("scale_attn_by_inverse_layer_idx", {"false"}, "attention scaled by 1/layer");
}

void read_gpt2(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  config.layer_norm = true;
  config.learned_positions = true;
  config.gated_mlp = false;
  config.vocab_size = values.integer("vocab_size");
  config.hidden_size = values.integer("n_embd");
  config.intermediate_size =
      values.given("n_inner") ? values.integer("n_inner") : 4 * config.hidden_size;
  config.num_layers = values.integer("n_layer");
  config.num_heads = values.integer("n_head");
  config.num_kv_heads = config.num_heads;
  config.head_dim = config.num_heads > 0 ? config.hidden_size / config.num_heads : 0;
  config.max_positions = values.integer("n_positions");
  config.norm_eps = values.number("layer_norm_epsilon");
  config.initializer_range = values.number("initializer_range");
  config.residual_dropout = values.number("resid_pdrop");
  config.embedding_dropout = values.number("embd_pdrop");
  config.attention_dropout = values.number("attn_pdrop");
  config.tie_word_embeddings = values.flag("tie_word_embeddings");
  config.attention_bias = config.attention_output_bias = true;
  config.mlp_bias = true;
  check_divides(values, "n_head", config.num_heads, "n_embd", config.hidden_size, report);
}

void write_gpt2(const ModelConfig& config, Json& json) {
  json["vocab_size"] = config.vocab_size;
  json["n_positions"] = config.max_positions;
  json["n_embd"] = config.hidden_size;
  json["n_layer"] = config.num_layers;
  json["n_head"] = config.num_heads;
  json["n_inner"] = config.intermediate_size;
  json["activation_function"] = "gelu_new";
  json["layer_norm_epsilon"] = config.norm_eps;
  json["resid_pdrop"] = config.residual_dropout;
  json["embd_pdrop"] = config.embedding_dropout;
  json["attn_pdrop"] = config.attention_dropout;
}

}  // namespace

// Checkpoints have q, k and v in one tensor, `attn.c_attn`; here they are three parameters.
constinit const Family kGpt2Family = {
    .id = ModelFamily::kGpt2,
    .model_type = "gpt2",
    .architecture = "GPT2LMHeadModel",
    .title = "GPT-2 style model",
    .models = "GPT-2",
    .special = "LayerNorm, learned positions, GELU, biases, dropout, tied head",
    .refused = "other activations, attention scaled by layer",
    .positions_key = "n_positions",
    .names = {.token_embedding = "transformer.wte",
              .position_embedding = "transformer.wpe",
              .layers = "transformer.h",
              .final_norm = "transformer.ln_f",
              .attention_norm = "ln_1",
              .attention = "attn",
              .attention_output = "c_proj",
              .mlp_norm = "ln_2",
              .mlp_up = "c_fc",
              .mlp_down = "c_proj"},
    .conv1d = true,
    .add_keys = add_gpt2_keys,
    .read = read_gpt2,
    .write = write_gpt2};

}  // namespace trireme
