// The HuggingFace keys of each model family.
#include <sstream>

#include "engine/core/error.h"
#include "transformer/model_config.h"

namespace trireme {
namespace {

// Bounds that keep every product of two sizes and the layer count far inside int64.
constexpr double kMaxVocab = 2147483647;
constexpr double kMaxWidth = 1 << 20;
constexpr double kMaxLayers = 1 << 16;
constexpr double kMaxPositions = 1 << 30;

// What transformers writes into every config.json without a meaning for training.
constexpr const char* kHarmless =
    "architectures transformers_version torch_dtype dtype use_cache pad_token_id "
    "_name_or_path name_or_path _attn_implementation _attn_implementation_autoset "
    "attn_implementation _commit_hash task_specific_params finetuning_task problem_type "
    "id2label label2id num_labels tokenizer_class prefix return_dict torchscript "
    "output_attentions output_hidden_states use_return_dict use_bfloat16 tf_legacy_loss "
    "is_decoder is_encoder_decoder tie_encoder_decoder decoder_start_token_id sep_token_id "
    "cross_attention_hidden_size chunk_size_feed_forward gradient_checkpointing max_length "
    "min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty "
    "temperature top_k top_p typical_p repetition_penalty length_penalty "
    "no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids num_return_sequences "
    "output_scores return_dict_in_generate forced_bos_token_id forced_eos_token_id "
    "remove_invalid_values exponential_decay_length_penalty suppress_tokens "
    "begin_suppress_tokens";

void add_shared(Schema& schema) {
  schema.integer("vocab_size", "", "number of token ids; at least that of the tokenizer")
      .required()
      .at_least(1)
      .at_most(kMaxVocab);
  schema.number("initializer_range", "0.02", "standard deviation of the initial weights")
      .at_least(0)
      .at_most(10);
  std::istringstream harmless(kHarmless);
  for (std::string key; harmless >> key;) schema.ignored(key);
  schema.refused("pruned_heads", {"{}"}, "pruned heads are not modelled");
  schema.unavailable("add_cross_attention", {"false"}, "cross attention");
  schema.unavailable("quantization_config", {}, "quantised weights");
}

Schema make_gpt2_schema() {
  Schema schema("GPT-2 style model (model_type \"gpt2\")");
  schema.choice("model_type", "gpt2", {"gpt2"}, "the family of the model");
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
  schema.number("layer_norm_epsilon", "1e-05", "added to the variance in LayerNorm")
      .above(0)
      .at_most(1);
  schema.number("resid_pdrop", "0.1", "dropout after attention and MLP").at_least(0).below(1);
  schema.number("embd_pdrop", "0.1", "dropout after the embeddings").at_least(0).below(1);
  schema.number("attn_pdrop", "0.1", "dropout of attention probabilities").at_least(0).below(1);
  schema.boolean("tie_word_embeddings", true, "the head uses the token embedding's weights");
  schema.any("bos_token_id", "50256", "token id", "token id that begins a text").or_null();
  schema.any("eos_token_id", "50256", "token id", "token id that ends a text").or_null();
  schema
      .choice("activation_function", "gelu_new", {"gelu_new", "gelu_pytorch_tanh"},
              "the MLP's activation; both words name GELU's tanh form")
      .not_yet({"gelu", "relu", "silu", "quick_gelu", "gelu_fast"});
  add_shared(schema);
  schema.unavailable("sliding_window", {}, "sliding-window attention");
  schema.ignored("n_ctx");
  schema.ignored("reorder_and_upcast_attn");
  for (const char* key : {"summary_type", "summary_use_proj", "summary_activation",
                          "summary_proj_to_labels", "summary_first_dropout"})
    schema.ignored(key);
  schema.unavailable("scale_attn_weights", {"true"},
                     "attention without the factor 1/sqrt(head_dim)");
  schema.unavailable("scale_attn_by_inverse_layer_idx", {"false"}, "attention scaled by 1/layer");
  schema.finish();
  return schema;
}

// What transformers takes for keys that are absent.
struct LlamaDefaults {
  const char* positions;
  const char* rope_theta;
  const char* norm_eps;
  const char* bos;
  const char* eos;
};

void add_llama_keys(Schema& schema, const LlamaDefaults& preset) {
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
  schema.integer("num_attention_heads", "", "query heads")
      .required()
      .at_least(1)
      .at_most(kMaxWidth);
  schema
      .integer("num_key_value_heads", "null",
               "key and value heads; divides num_attention_heads; null: as many as those")
      .or_null()
      .at_least(1)
      .at_most(kMaxWidth);
  schema
      .integer("head_dim", "null", "width of a head, even; null: hidden_size / num_attention_heads")
      .or_null()
      .at_least(2)
      .at_most(kMaxWidth);
  schema.integer("max_position_embeddings", preset.positions, "longest sequence")
      .at_least(1)
      .at_most(kMaxPositions);
  schema.number("rope_theta", preset.rope_theta, "base of the rotary frequencies")
      .above(0)
      .alias({"rope_parameters.rope_theta"});
  schema.number("rms_norm_eps", preset.norm_eps, "added to the mean square in RMSNorm")
      .above(0)
      .at_most(1);
  schema.number("attention_dropout", "0", "dropout of attention probabilities")
      .at_least(0)
      .below(1);
  schema.boolean("tie_word_embeddings", false, "the head uses the token embedding's weights");
  schema.any("bos_token_id", preset.bos, "token id", "token id that begins a text").or_null();
  schema
      .any("eos_token_id", preset.eos, "token id", "token id that ends a text; of a list the first")
      .or_null();
  schema.choice("hidden_act", "silu", {"silu"}, "the gate's activation")
      .synonym("swish", "silu")
      .not_yet({"gelu", "gelu_new", "gelu_pytorch_tanh", "relu"});
  add_shared(schema);
  schema.unavailable("rope_scaling", {}, "scaled rotary frequencies");
  schema.unavailable("rope_parameters.rope_type", {"\"default\""}, "scaled rotary frequencies");
  schema.unavailable("partial_rotary_factor", {"1"}, "rotary on a part of the head");
  schema.unavailable("use_sliding_window", {"false"}, "sliding-window attention");
}

void add_attention_bias(Schema& schema) {
  schema.boolean("attention_bias", false, "biases of the q, k, v and o projections");
}

Schema make_llama_schema() {
  Schema schema("Llama style model (model_type \"llama\")");
  schema.choice("model_type", "llama", {"llama"}, "the family of the model");
  add_llama_keys(schema, {"2048", "10000", "1e-06", "1", "2"});
  add_attention_bias(schema);
  schema.boolean("mlp_bias", false, "biases of the gate, up and down projections");
  schema.ignored("pretraining_tp");  // the same result computed in slices
  schema.unavailable("sliding_window", {}, "sliding-window attention");
  schema.unavailable("num_local_experts", {"0", "1"}, "mixture of experts in a llama");
  schema.unavailable("num_experts", {"0", "1"}, "mixture of experts in a llama");
  schema.finish();
  return schema;
}

Schema make_mixtral_schema() {
  Schema schema("Mixtral style model: experts in every layer (model_type \"mixtral\")");
  schema.choice("model_type", "mixtral", {"mixtral"}, "the family of the model");
  add_llama_keys(schema, {"131072", "1000000", "1e-05", "1", "2"});
  schema.unavailable("sliding_window", {}, "sliding-window attention");
  add_moe_keys(schema, ModelFamily::kMixtral);
  schema.finish();
  return schema;
}

Schema make_qwen2_moe_schema() {
  Schema schema("Qwen2-MoE style model: experts beside a shared MLP (model_type \"qwen2_moe\")");
  schema.choice("model_type", "qwen2_moe", {"qwen2_moe"}, "the family of the model");
  add_llama_keys(schema, {"32768", "10000", "1e-06", "null", "null"});
  schema.boolean("qkv_bias", true, "biases of the q, k and v projections");
  schema.ignored("sliding_window");  // counts with use_sliding_window only
  schema.ignored("max_window_layers");
  add_moe_keys(schema, ModelFamily::kQwen2Moe);
  schema.finish();
  return schema;
}

Schema make_deepseek_schema() {
  Schema schema(
      "DeepSeek-MoE style model: fine experts beside shared ones (model_type \"deepseek\")");
  schema.choice("model_type", "deepseek", {"deepseek"}, "the family of the model");
  add_llama_keys(schema, {"2048", "10000", "1e-06", "100000", "100001"});
  add_attention_bias(schema);
  schema.ignored("pretraining_tp");
  schema.unavailable("sliding_window", {}, "sliding-window attention");
  add_moe_keys(schema, ModelFamily::kDeepseek);
  schema.finish();
  return schema;
}

}  // namespace

const Schema& model_schema(ModelFamily family) {
  static const Schema gpt2 = make_gpt2_schema();
  static const Schema llama = make_llama_schema();
  static const Schema mixtral = make_mixtral_schema();
  static const Schema qwen2_moe = make_qwen2_moe_schema();
  static const Schema deepseek = make_deepseek_schema();
  switch (family) {
    case ModelFamily::kGpt2: return gpt2;
    case ModelFamily::kLlama: return llama;
    case ModelFamily::kMixtral: return mixtral;
    case ModelFamily::kQwen2Moe: return qwen2_moe;
    case ModelFamily::kDeepseek: return deepseek;
  }
  TRIREME_UNREACHABLE("model family ", static_cast<int>(family));
}

}  // namespace trireme
