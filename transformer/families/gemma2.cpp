// Gemma 2 (Gemma Team 2024, arXiv 2408.00118): pre- and post-norms with 1 + w around attention and
// MLP, GeGLU, soft caps of the scores and of the logits, a sliding window in every other layer, a
// tied head, an embedding times sqrt(hidden_size).
#include <nlohmann/json.hpp>

#include "transformer/families/gemma_keys.h"
#include "transformer/families/rope_keys.h"
#include "transformer/families/table.h"
#include "transformer/families/window_keys.h"

namespace trireme {
namespace {

constexpr int64_t kFullInterval = 2;  // of layers with full attention
constexpr const char* kAttentionCap = "attn_logit_softcapping";

void add_gemma2_keys(Schema& schema) {
  add_gemma_keys(schema,
                 {.positions = "8192",
                  .bos = "2",
                  .eos = "1",
                  .kv_heads = "4",
                  .head_dim = "256",
                  .vocab = "256000",
                  .heads = "8",
                  .tied = true},
                 "30");
  add_soft_cap(schema, kAttentionCap, "50", "c of the scores' soft cap c tanh(score / c)");
  add_listed_window_keys(schema);
  add_rope_keys(schema, {});
  // A copy of sliding_window.
  schema.ignored("sliding_window_size");
}

void read_gemma2(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  read_gemma_keys(values, config, report);
  config.attention_soft_cap = values.number(kAttentionCap);
  read_listed_window_keys(values, kFullInterval, config, report);
  read_rope_keys(values, config, report);
}

void write_gemma2(const ModelConfig& config, Json& json) {
  write_gemma_keys(config, json);
  json[kAttentionCap] = soft_cap_json(config.attention_soft_cap);
  write_listed_window_keys(config, json);
  write_rope_keys(config, json);
}

}  // namespace

constinit const Family kGemma2Family = {
    .id = ModelFamily::kGemma2,
    .model_type = "gemma2",
    .architecture = "Gemma2ForCausalLM",
    .title = "Gemma 2 style model: soft caps of scores and logits",
    .models = "Gemma 2",
    .special =
        "norms with 1 + w, before and after attention and MLP; GELU gates; soft caps of the scores "
        "and of the logits; windows in every other layer; embedding times sqrt(hidden_size)",
    .refused = "attention to later tokens",
    .positions_key = "max_position_embeddings",
    .names = {.mlp_norm = "pre_feedforward_layernorm",
              .attention_post_norm = "post_attention_layernorm",
              .mlp_post_norm = "post_feedforward_layernorm"},
    .layer_types = true,
    .begins_with_bos = true,
    .add_keys = add_gemma2_keys,
    .read = read_gemma2,
    .write = write_gemma2};

}  // namespace trireme
