#include "transformer/families/gemma_keys.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace trireme {
namespace {

constexpr const char* kCap = "final_logit_softcapping";
constexpr double kMaxCap = 1e30;  // its product with log2(e) is finite in float32

}  // namespace

void add_soft_cap(Schema& schema, const char* key, const char* preset, const char* help) {
  schema.number(key, preset, help).or_null().above(0).at_most(kMaxCap);
}

Json soft_cap_json(double cap) { return cap > 0 ? Json(cap) : Json(); }

void add_gemma_keys(Schema& schema, const LlamaDefaults& preset, const char* logits_cap) {
  add_decoder_keys(schema, preset);
  add_head_dim(schema, preset.head_dim);
  add_attention_bias(schema);
  schema
      .choice("hidden_activation", "gelu_pytorch_tanh", {"gelu_pytorch_tanh"},
              "the gate's activation: GELU's tanh form")
      .alias({"hidden_act"})
      .not_yet({"gelu", "silu", "relu"});
  schema.number("query_pre_attn_scalar", "256", "the softmax's scale is 1 / its square root")
      .above(0);
  add_soft_cap(schema, kCap, logits_cap, "c of the logits' soft cap c tanh(logit / c)");
}

void read_gemma_keys(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  read_decoder_keys(values, config, report);
  read_head_dim(values, config, report);
  read_attention_bias(values, config);
  config.gelu_gate = config.zero_centered_gamma = config.post_norms = true;
  config.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
  config.attention_scale = 1 / std::sqrt(values.number("query_pre_attn_scalar"));
  config.logits_soft_cap = values.number(kCap);
}

void write_gemma_keys(const ModelConfig& config, Json& json) {
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
  json[kCap] = soft_cap_json(config.logits_soft_cap);
}

}  // namespace trireme
