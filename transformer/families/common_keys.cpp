#include "transformer/families/common_keys.h"

#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "transformer/families/rope_keys.h"

namespace trireme {
namespace {

void add_llama_sizes(Schema& schema, const LlamaDefaults& preset) {
  schema.integer("num_hidden_layers", "", "transformer blocks")
      .required()
      .at_least(1)
      .at_most(kMaxLayers);
  schema.integer("hidden_size", "", "width of the residual stream")
      .required()
      .at_least(1)
      .at_most(kMaxWidth);
  schema.integer("intermediate_size", "", "width of the gated MLP")
      .required()
      .at_least(1)
      .at_most(4 * kMaxWidth);
  Key& heads = schema.integer("num_attention_heads", preset.heads, "query heads")
                   .at_least(1)
                   .at_most(kMaxWidth);
  if (heads.default_json.empty()) heads.required();
  schema
      .integer("num_key_value_heads", preset.kv_heads,
               "key and value heads; divides num_attention_heads; null: as many as those")
      .or_null()
      .at_least(1)
      .at_most(kMaxWidth);
}

}  // namespace

void add_common_keys(Schema& schema, const char* vocab_default) {
  Key& vocab = schema
                   .integer("vocab_size", vocab_default,
                            "number of token ids; at least that of the tokenizer")
                   .at_least(1)
                   .at_most(kMaxVocab);
  if (vocab.default_json.empty()) vocab.required();
  schema.number("initializer_range", "0.02", "standard deviation of the initial weights")
      .at_least(0)
      .at_most(10);
}

void add_decoder_keys(Schema& schema, const LlamaDefaults& preset) {
  add_llama_sizes(schema, preset);
  schema.integer("max_position_embeddings", preset.positions, "longest sequence")
      .at_least(1)
      .at_most(kMaxPositions);
  schema.number("rms_norm_eps", preset.norm_eps, "added to the mean square in RMSNorm")
      .above(0)
      .at_most(1);
  schema
      .number("attention_dropout", preset.attention_dropout,
              "dropout of attention probabilities; null: 0")
      .or_null()
      .at_least(0)
      .below(1);
  schema.boolean("tie_word_embeddings", preset.tied, "the head uses the token embedding's weights");
  schema.any("bos_token_id", preset.bos, "token id", "token id that begins a text").or_null();
  schema
      .any("eos_token_id", preset.eos, "token id or list of such",
           "token id that ends a text, or a list of such")
      .or_null();
  add_common_keys(schema, preset.vocab);
}

void add_silu_gate(Schema& schema) {
  schema.choice("hidden_act", "silu", {"silu"}, "the gate's activation")
      .synonym("swish", "silu")
      .not_yet({"gelu", "gelu_new", "gelu_pytorch_tanh", "relu"});
}

void add_head_dim(Schema& schema, const char* preset) {
  schema
      .integer("head_dim", preset, "width of a head, even; null: hidden_size / num_attention_heads")
      .or_null()
      .at_least(2)
      .at_most(kMaxWidth);
}

void add_llama_keys(Schema& schema, const LlamaDefaults& preset) {
  add_decoder_keys(schema, preset);
  add_silu_gate(schema);
  add_head_dim(schema, preset.head_dim);
  add_rope_keys(schema, {.theta = preset.rope_theta, .rotary_factor = preset.rotary_factor});
}

void read_decoder_keys(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  config.vocab_size = values.integer("vocab_size");
  config.hidden_size = values.integer("hidden_size");
  config.intermediate_size = values.integer("intermediate_size");
  config.num_layers = values.integer("num_hidden_layers");
  config.num_heads = values.integer("num_attention_heads");
  config.num_kv_heads = values.integer("num_key_value_heads");  // 0: null
  if (config.num_kv_heads == 0) config.num_kv_heads = config.num_heads;
  config.max_positions = values.integer("max_position_embeddings");
  config.norm_eps = values.number("rms_norm_eps");
  config.initializer_range = values.number("initializer_range");
  config.attention_dropout = values.number("attention_dropout");
  config.tie_word_embeddings = values.flag("tie_word_embeddings");
  check_divides(values, "num_key_value_heads", config.num_kv_heads, "num_attention_heads",
                config.num_heads, report);
}

void read_head_dim(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  config.head_dim = values.integer("head_dim");  // 0: null
  const char* const source = config.head_dim > 0 ? "head_dim" : "num_attention_heads";
  if (config.head_dim == 0 && config.num_heads > 0 &&
      check_divides(values, source, config.num_heads, "hidden_size", config.hidden_size, report)) {
    config.head_dim = config.hidden_size / config.num_heads;
  }
  if (config.head_dim % 2 != 0)
    report.error(values.spelled(source), concat("gives heads of width ", config.head_dim,
                                                "; the rotary embedding needs an even width"));
}

void read_llama_keys(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  read_decoder_keys(values, config, report);
  read_head_dim(values, config, report);
  read_rope_keys(values, config, report);
}

void write_decoder_keys(const ModelConfig& config, Json& json) {
  json["vocab_size"] = config.vocab_size;
  json["max_position_embeddings"] = config.max_positions;
  json["hidden_size"] = config.hidden_size;
  json["intermediate_size"] = config.intermediate_size;
  json["num_hidden_layers"] = config.num_layers;
  json["num_attention_heads"] = config.num_heads;
  json["num_key_value_heads"] = config.num_kv_heads;
  json["rms_norm_eps"] = config.norm_eps;
  json["attention_dropout"] = config.attention_dropout;
}

void write_llama_keys(const ModelConfig& config, Json& json) {
  write_decoder_keys(config, json);
  json["head_dim"] = config.head_dim;
  json["hidden_act"] = "silu";
  write_rope_keys(config, json);
}

void add_attention_bias(Schema& schema) {
  schema.boolean("attention_bias", false, "biases of the q, k, v and o projections");
}

void read_attention_bias(const ConfigValues& values, ModelConfig& config) {
  config.attention_bias = config.attention_output_bias = values.flag("attention_bias");
}

void add_mlp_bias(Schema& schema) {
  schema.boolean("mlp_bias", false, "biases of the gate, up and down projections");
}

bool check_divides(const ConfigValues& values, const std::string& small, int64_t divisor,
                   const std::string& large, int64_t dividend, ConfigReport& report) {
  if (divisor == 0 || dividend % divisor == 0) return true;
  report.error(values.spelled(small), concat(divisor, " does not divide ", large, " ", dividend));
  return false;
}

}  // namespace trireme
