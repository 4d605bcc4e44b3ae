// Llama 4 (Meta 2025), the text model: Llama's block with experts whose inputs their weights scale;
// layers with rotary positions of neighbouring elements attend inside chunks, those without to all
// earlier tokens with queries that grow with their position (Nakanishi 2025, arXiv 2501.19399).
#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "transformer/families/common_keys.h"
#include "transformer/families/expert_keys.h"
#include "transformer/families/rope_keys.h"
#include "transformer/families/table.h"

namespace trireme {
namespace {

constexpr const char* kChunkedAttention = "chunked_attention";
constexpr const char* kFullAttention = "full_attention";
constexpr int64_t kFloorScale = 8192;
constexpr ExpertKeys kLlama4Experts{.experts = "num_local_experts",
                                    .experts_default = "16",
                                    .per_token_default = "1",
                                    .balance = "router_aux_loss_coef",
                                    .mixed = false};

void add_attention_keys(Schema& schema) {
  add_rope_layer_keys(schema);
  schema
      .integer("attention_chunk_size", "8192",
               "tokens of a chunk, inside which layers of type chunked_attention attend; null: all "
               "layers attend to all earlier tokens")
      .or_null()
      .at_least(1)
      .at_most(kMaxPositions);
  schema
      .any("layer_types", "null", "list of words",
           "of each layer \"full_attention\" or \"chunked_attention\"; null: chunked in layers "
           "with rotary positions")
      .or_null();
  schema.boolean("use_qk_norm", true,
                 "RMSNorm without weights of each head's q and k after their rotation, in layers "
                 "with rotary positions");
  schema.boolean("attn_temperature_tuning", true,
                 "queries at position p of layers without rotary positions are multiplied by 1 + "
                 "attn_scale ln(1 + floor((p + 1) / floor_scale))");
  schema.number("attn_scale", "0.1", "factor of the logarithm in attn_temperature_tuning")
      .at_least(0);
  schema
      .integer("floor_scale", "8192",
               "tokens between two steps of the factor in attn_temperature_tuning")
      .at_least(1);
}

void add_llama4_keys(Schema& schema) {
  add_llama_keys(schema, {.positions = "131072",
                          .rope_theta = "500000",
                          .norm_eps = "1e-05",
                          .kv_heads = "8",
                          .head_dim = "128",
                          .vocab = "202048",
                          .heads = "40"});
  add_attention_bias(schema);
  add_attention_keys(schema);
  schema
      .integer("intermediate_size_mlp", "16384",
               "width of the MLP in layers without experts; intermediate_size is that of an expert "
               "and of the shared one")
      .at_least(1)
      .at_most(4 * kMaxWidth);
  add_expert_keys(schema, kLlama4Experts);
  schema
      .any("moe_layers", "null", "list of layers",
           "numbers of the layers with experts; null: every interleave_moe_layer_step-th")
      .or_null();
  schema
      .integer("interleave_moe_layer_step", "1",
               "interval of layers with experts, where moe_layers is not given")
      .at_least(1);
  add_routing_keys(schema);
  schema.unavailable("for_llm_compressor", {"false"}, "experts in tensors of their own");
  schema.ignored("router_jitter_noise");  // this model of transformers does not read it
}

// Whether each layer has experts.
std::vector<bool> read_sparse_layers(const ConfigValues& values, int64_t layers,
                                     ConfigReport& report) {
  std::vector<bool> out(static_cast<size_t>(layers), false);
  if (!values.given("moe_layers")) {
    const int64_t step = std::max<int64_t>(1, values.integer("interleave_moe_layer_step"));
    for (int64_t l = step - 1; l < layers; l += step) out[static_cast<size_t>(l)] = true;
  } else {
    const Json& list = values.raw("moe_layers");
    const auto exists = [&](const Json& l) {
      return l.is_number_integer() && l >= 0 && l < layers;
    };
    if (list.is_array() && std::ranges::all_of(list, exists))
      for (const Json& l : list) out[l.get<size_t>()] = true;
  }
  if (std::ranges::find(out, true) == out.end())
    report.error(
        values.spelled(values.given("moe_layers") ? "moe_layers" : "interleave_moe_layer_step"),
        concat("must leave a layer with experts: a list of numbers from 0 to ", layers - 1,
               ", or an interval up to ", layers));
  return out;
}

// Element 1 for each layer whose attention stays inside chunks, else 0.
std::vector<uint8_t> read_chunked_layers(const ConfigValues& values, const ModelConfig& config,
                                         ConfigReport& report) {
  const bool chunks = values.integer("attention_chunk_size") > 0;
  std::vector<uint8_t> out;
  if (!values.given("layer_types")) {
    for (int64_t l = 0; l < config.num_layers; ++l)
      out.push_back(chunks && config.rotates(l) ? 1 : 0);
    return out;
  }
  const Json& types = values.raw("layer_types");
  const std::string place = values.spelled("layer_types");
  if (!types.is_array() || std::ssize(types) != config.num_layers)
    report.error(place, concat("must be a list of ", config.num_layers,
                               " words, one for each layer, got ", shown(types)));
  else
    for (const Json& type : types) {
      if (type != kChunkedAttention && type != kFullAttention)
        report.error(place, concat("must hold \"", kFullAttention, "\" and \"", kChunkedAttention,
                                   "\", got ", shown(type)));
      else if (type == kChunkedAttention && !chunks)
        report.error(place, concat("\"", kChunkedAttention, "\" needs attention_chunk_size"));
      out.push_back(type == kChunkedAttention ? 1 : 0);
    }
  return out;
}

void read_attention(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  read_rope_layer_keys(values, config, report);
  config.rope_interleaved = true;
  config.chunked_layers = read_chunked_layers(values, config, report);
  if (std::ranges::find(config.chunked_layers, 1) == config.chunked_layers.end())
    config.chunked_layers.clear();
  else
    config.attention_chunk = values.integer("attention_chunk_size");
  config.qk_norm = values.flag("use_qk_norm");
  config.qk_norm_after_rope = config.qk_norm_weightless = config.qk_norm;
  if (values.flag("attn_temperature_tuning")) config.query_scaling = values.number("attn_scale");
  if (config.query_scaling > 0) config.unrotated_scaling = values.integer("floor_scale");
}

void read_llama4(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  read_llama_keys(values, config, report);
  read_attention_bias(values, config);
  read_attention(values, config, report);
  MoeConfig& moe = config.moe;
  moe = read_expert_keys(values, kLlama4Experts);
  moe.shared_intermediate_size = moe.intermediate_size;
  moe.sigmoid_scores = moe.scaled_inputs = moe.choose_by_logits = true;
  moe.normalize_weights = false;
  config.intermediate_size = values.integer("intermediate_size_mlp");
  const std::vector<bool> sparse = read_sparse_layers(values, config.num_layers, report);
  for (int64_t l = 0; l < config.num_layers; ++l)
    if (!sparse[static_cast<size_t>(l)]) moe.dense_layers.push_back(l);
  read_routing_keys(values, kLlama4Experts, moe, report);
}

void write_llama4(const ModelConfig& config, Json& json) {
  write_llama_keys(config, json);
  json["intermediate_size"] = config.moe.intermediate_size;
  json["intermediate_size_mlp"] = config.intermediate_size;
  json["attention_bias"] = config.attention_bias;
  write_rope_layer_keys(config, json);
  const bool chunks = config.attention_chunk > 0;
  json["attention_chunk_size"] = chunks ? Json(config.attention_chunk) : Json();
  Json types = Json::array(), sparse = Json::array();
  for (int64_t l = 0; l < config.num_layers; ++l) {
    types.push_back(config.chunked(l) ? kChunkedAttention : kFullAttention);
    if (config.moe.sparse(l)) sparse.push_back(l);
  }
  json["layer_types"] = std::move(types);
  json["use_qk_norm"] = config.qk_norm;
  json["attn_temperature_tuning"] = config.query_scaling > 0;
  json["attn_scale"] = config.query_scaling;
  json["floor_scale"] = config.unrotated_scaling > 0 ? config.unrotated_scaling : kFloorScale;
  write_expert_keys(config.moe, kLlama4Experts, json);
  json["moe_layers"] = std::move(sparse);
  write_routing_keys(config.moe, json);
}

}  // namespace

constinit const Family kLlama4Family = {
    .id = ModelFamily::kLlama4,
    .model_type = "llama4_text",
    .architecture = "Llama4ForCausalLM",
    .title = "Llama 4 style model: attention in chunks, experts with scaled inputs",
    .models = "Llama 4 Scout, Maverick: the text part of `llama4`",
    .special =
        "layers with rotary positions of neighbouring elements, whose heads of q and k are "
        "normalized after it without weights and which attend inside chunks "
        "(`attention_chunk_size`), and layers without, whose queries grow with their position; "
        "sigmoid scores of experts, which scale their inputs, and a shared expert; dense layers "
        "between (`interleave_moe_layer_step`)",
    .refused = "images",
    .positions_key = "max_position_embeddings",
    .names = {.mlp = "feed_forward",
              .experts = "feed_forward",
              .router = "router",
              .shared_expert = "shared_expert",
              .selection_bias = "router.e_score_correction_bias"},
    .stacked_experts = {.gate_up = "experts.gate_up_proj",
                        .down = "experts.down_proj",
                        .transposed = true},
    .layer_types = true,
    .add_keys = add_llama4_keys,
    .read = read_llama4,
    .write = write_llama4};

}  // namespace trireme
