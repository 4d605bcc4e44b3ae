#include "transformer/families/foreign_keys.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

#include "engine/core/error.h"
#include "transformer/families/common_keys.h"

namespace trireme {
namespace {

// Written by transformers (PreTrainedConfig, GenerationConfig) or by other programs; no value of
// these changes what a forward pass computes.
constexpr const char* kHarmless =
    "transformers_version torch_dtype dtype use_cache pad_token_id _name_or_path name_or_path "
    "_attn_implementation _attn_implementation_autoset _attn_implementation_internal "
    "attn_implementation _experts_implementation _experts_implementation_internal "
    "experts_implementation _commit_hash _auto_class _output_attentions task_specific_params "
    "finetuning_task problem_type id2label label2id num_labels _num_labels tokenizer_class prefix "
    "return_dict torchscript output_attentions output_hidden_states use_return_dict use_bfloat16 "
    "tf_legacy_loss is_decoder tie_encoder_decoder decoder_start_token_id sep_token_id "
    "cross_attention_hidden_size chunk_size_feed_forward tie_last_hidden_states "
    "gradient_checkpointing summary_type summary_use_proj summary_activation "
    "summary_proj_to_labels summary_first_dropout "
    // Generation.
    "max_length max_new_tokens min_length min_new_tokens do_sample early_stopping num_beams "
    "num_beam_groups diversity_penalty temperature top_k top_p min_p typical_p epsilon_cutoff "
    "eta_cutoff repetition_penalty encoder_repetition_penalty length_penalty no_repeat_ngram_size "
    "encoder_no_repeat_ngram_size bad_words_ids num_return_sequences output_scores "
    "return_dict_in_generate forced_bos_token_id forced_eos_token_id remove_invalid_values "
    "exponential_decay_length_penalty suppress_tokens begin_suppress_tokens cache_implementation "
    "assistant_confidence_threshold assistant_lookbehind target_lookbehind num_assistant_tokens "
    "num_assistant_tokens_schedule "
    // Other programs, and custom code that a directory contains.
    "auto_map is_llama_config max_sequence_length model_max_length seq_length n_ctx unsloth_fixed "
    "unsloth_version unsloth_quantization pretraining_tp ep_size flash_attention use_flash_attn "
    "use_flash_attention use_flash_attention_2 _flash_attn_2_enabled "
    "use_memory_efficient_attention "
    "use_xformers use_sdpa trust_remote_code "
    "tokenizer_model_max_length tokenizer_padding_side padding_side use_fast_tokenizer bos_token "
    "eos_token pad_token unk_token unk_token_id mask_token_id eod_token_id padding_idx model_name "
    "base_model library_name license language pipeline_tag datasets tags "
    "onnx transformers.js_config reorder_and_upcast_attn output_router_logits";

// Keys of features that are refused by name. neutral: JSON values that do not enable the feature;
// null always belongs to them.
struct ForeignKey {
  const char* key;
  std::vector<std::string> neutral;
  const char* what;
};

const std::vector<ForeignKey>& attention_keys() {
  static const std::vector<ForeignKey> rows = {
      {"is_causal", {"true"}, "attention to later tokens"},
      {"use_bidirectional_attention", {"false"}, "attention to later tokens"},
      {"bidirectional", {"false"}, "attention to later tokens"},
      {"alibi", {"false"}, "positions by biases of the attention"},
      {"use_alibi", {"false"}, "positions by biases of the attention"},
      {"clip_qkv", {}, "clipped queries, keys and values"},
      {"attn_logit_softcapping", {}, "attention logits capped by tanh"},
      {"query_pre_attn_scalar", {}, "another scale of the softmax"},
      {"attention_multiplier", {}, "another scale of the softmax"},
      {"attention_scale", {}, "another scale of the softmax"},
      {"attn_scale", {}, "another scale of the softmax"},
      {"softmax_scale", {}, "another scale of the softmax"},
      {"attn_temperature_tuning", {"false", "0"}, "queries scaled by position"},
      {"floor_scale", {}, "queries scaled by position"},
      {"llama_4_scaling_beta", {"0"}, "queries scaled by position"},
      {"use_logn_attn", {"false"}, "queries scaled by position"},
      {"key_multiplier", {"1"}, "scaled keys"},
      {"attention_in_multiplier", {"1"}, "scaled inputs of the attention"},
      {"attention_out_multiplier", {"1"}, "scaled outputs of the attention"},
      {"attention_chunk_size", {}, "attention inside chunks"},
      {"use_attention_sinks", {"false"}, "attention sinks"},
      {"attention_sinks", {"false"}, "attention sinks"},
      {"attn_output_gate", {"false"}, "a gate of the attention's output"},
      {"use_sliding_window", {"false"}, "sliding-window attention"},
      {"sliding_window", {}, "sliding-window attention"},
      {"max_window_layers", {}, "sliding-window attention"},
      {"kv_lora_rank", {}, "multi-head latent attention"},
      {"q_lora_rank", {}, "multi-head latent attention"},
      {"qk_rope_head_dim", {}, "multi-head latent attention"},
      {"qk_nope_head_dim", {}, "multi-head latent attention"},
      {"v_head_dim", {}, "multi-head latent attention"},
      {"attention_bias", {"false"}, "other biases of the attention"},
      {"qkv_bias", {"false"}, "other biases of the attention"}};
  return rows;
}

const std::vector<ForeignKey>& other_keys() {
  static const std::vector<ForeignKey> rows = {
      {"per_layer_config", {"{}"}, "layers with configurations of their own"},
      {"is_encoder_decoder", {"false"}, "an encoder"},
      {"no_rope_layers", {"[]"}, "layers without rotary positions"},
      {"no_rope_layer_interval", {}, "layers without rotary positions"},
      {"nope_layer_interval", {}, "layers without rotary positions"},
      {"use_rope", {"true"}, "a model without rotary positions"},
      {"rope_interleaved", {"false"}, "rotary positions of neighbouring elements"},
      {"rope_interleave", {"false"}, "rotary positions of neighbouring elements"},
      {"use_mrope", {"false"}, "rotary positions in several dimensions"},
      {"rotary_pct", {"1"}, "rotary on a part of the head"},
      {"rotary_percentage", {"1"}, "rotary on a part of the head"},
      {"rotary_dim", {}, "rotary on a part of the head"},
      {"final_logit_softcapping", {}, "logits capped by tanh"},
      {"logit_scale", {"1"}, "scaled logits"},
      {"logits_scaling", {"1"}, "scaled logits"},
      {"lm_head_multiplier", {"1"}, "scaled logits"},
      {"mup_multiplier", {"1"}, "scaled activations"},
      {"dim_model_base", {}, "scaled logits"},
      {"embedding_multiplier", {"1"}, "a scaled embedding"},
      {"embed_scale", {"1"}, "a scaled embedding"},
      {"scale_emb", {"1"}, "a scaled embedding"},
      {"scale_embedding", {"false"}, "a scaled embedding"},
      {"residual_multiplier", {"1"}, "scaled branches"},
      {"scale_depth", {}, "scaled branches"},
      {"mlp_multipliers", {}, "scaled MLPs"},
      {"swiglu_limit", {}, "clipped gates"},
      {"use_parallel_residual", {"false"}, "attention and MLP side by side"},
      {"parallel_attn", {"false"}, "attention and MLP side by side"},
      {"mlp_bias", {"false"}, "biases of the MLPs"},
      {"num_local_experts", {"0", "1"}, "mixture of experts in a dense family"},
      {"num_experts", {"0", "1"}, "mixture of experts in a dense family"},
      {"n_routed_experts", {"0"}, "mixture of experts in a dense family"},
      {"n_shared_experts", {"0"}, "shared experts"},
      {"shared_expert_intermediate_size", {"0"}, "shared experts"},
      {"router_jitter_noise", {"0"}, "jitter of the router's input"},
      {"embd_pdrop", {"0"}, "dropout of the embedding"},
      {"resid_pdrop", {"0"}, "dropout of the branches"},
      {"attn_pdrop", {"0"}, "dropout of the attention under another name"},
      {"hidden_dropout", {"0"}, "dropout of the branches"},
      {"residual_dropout", {"0"}, "dropout of the branches"},
      {"partial_rotary_factor", {"1"}, "rotary on a part of the head"},
      {"quantization", {}, "weights quantized by MLX"},
      {"compression_config", {}, "compressed weights"}};
  return rows;
}

bool has(const Schema& schema, std::string_view path) {
  return std::ranges::any_of(schema.keys(), [&](const Key& key) {
    return key.path == path || std::ranges::find(key.aliases, path) != key.aliases.end();
  });
}

void add_unless_there(Schema& schema, const ForeignKey& row) {
  if (!has(schema, row.key)) schema.unavailable(row.key, row.neutral, row.what);
}

// Keys whose neutral value depends on the family.
void add_by_family(const Family& family, Schema& schema) {
  const bool rms = has(schema, "rms_norm_eps");
  const bool post_norms = *family.names.attention_post_norm != '\0';
  const std::vector<std::string> norms =
      rms ? std::vector<std::string>{"\"rms_norm\"", "\"rmsnorm\"", "\"RMSNorm\"", "\"rms\""}
          : std::vector<std::string>{"\"layer_norm\"", "\"layernorm\"", "\"LayerNorm\""};
  const std::vector<std::string> positions =
      rms ? std::vector<std::string>{"\"rope\"", "\"ROPE\"", "\"rotary\""}
          : std::vector<std::string>{"\"absolute\"", "\"learned\""};
  add_unless_there(schema, {"norm_type", norms, "other norms"});
  add_unless_there(schema, {"position_embedding_type", positions, "other positions"});
  for (const char* key : {"use_qk_norm", "qk_norm", "qk_layernorm"})
    add_unless_there(schema, {key, {text(family.qk_norm)}, "normalized heads of q and k, or none"});
  for (const char* key : {"sandwich_norm", "use_post_norm"})
    add_unless_there(schema, {key, {text(post_norms)}, "norms after the branches, or none"});
}

}  // namespace

void add_foreign_keys(const Family& family, Schema& schema) {
  schema
      .any("architectures", "null", "list of class names",
           "transformers' classes, which must be the family's: that of another model_type is "
           "other mathematics")
      .or_null();
  if (!has(schema, "layer_types"))
    schema
        .any("layer_types", "null", "list of words",
             "of each layer \"full_attention\" or \"sliding_attention\": what it has anyway")
        .or_null();
  std::istringstream harmless(kHarmless);
  for (std::string key; harmless >> key;)
    if (!has(schema, key)) schema.ignored(key);
  add_by_family(family, schema);
  for (const ForeignKey& row : attention_keys()) add_unless_there(schema, row);
  for (const ForeignKey& row : other_keys()) add_unless_there(schema, row);
  schema.no_effect("dual_chunk_attention_config",
                   "sequences longer than its chunks are computed as transformers does, with plain "
                   "attention");
  schema.refused("pruned_heads", {"{}"}, "pruned heads are not modelled");
  if (!has(schema, "add_cross_attention"))
    schema.unavailable("add_cross_attention", {"false"}, "cross attention");
  schema.unavailable("quantization_config", {},
                     "quantized weights in a run's configuration; a directory's are read");
}

void check_architectures(const Family& family, const ConfigValues& values, ConfigReport& report) {
  const Json names = values.raw("architectures");
  if (names.is_null() || (names.is_array() && names.empty())) return;
  std::string prefix = family.architecture;  // "Llama"
  for (const std::string_view end : {"ForCausalLM", "LMHeadModel"})
    if (prefix.ends_with(end)) prefix.resize(prefix.size() - end.size());
  const auto is_ours = [&](const Json& name) {
    if (!name.is_string()) return false;
    std::string word = name.get<std::string>();
    if (word.starts_with("LLaMA")) word.replace(0, 5, "Llama");  // before transformers supported it
    if (const size_t at = word.find("_For"); at != std::string::npos) word.erase(at, 1);
    if (!word.starts_with(prefix)) return false;
    for (const char* end : {"ForCausalLM", "LMHeadModel", "Model", "TextModel", "DoubleHeadsModel",
                            "ForConditionalGeneration", "ForSequenceClassification",
                            "ForTokenClassification", "ForQuestionAnswering"})
      if (word.compare(prefix.size(), std::string::npos, end) == 0) return true;
    return false;
  };
  if (names.is_array() && std::ranges::any_of(names, is_ours)) return;
  report.error(values.spelled("architectures"),
               concat(shown(names), " is not of model_type \"", family.model_type,
                      "\", whose class is ", family.architecture,
                      ": the model may compute something else; if it does not, name that class"));
}

void check_layer_types(const ConfigValues& values, const ModelConfig& config,
                       ConfigReport& report) {
  if (!values.given("layer_types")) return;
  const Json& types = values.raw("layer_types");
  bool same = types.is_array() && std::ssize(types) == config.num_layers;
  for (int64_t l = 0; same && l < config.num_layers; ++l)
    same = types[static_cast<size_t>(l)] ==
           (config.window(l) > 0 ? "sliding_attention" : "full_attention");
  if (!same)
    report.error(values.spelled("layer_types"),
                 concat(shown(types), " does not match the layers of this model_type",
                        config.has_windows() ? ": sliding_attention" : ": full_attention"));
}

}  // namespace trireme
