// Gemma 3 (Gemma Team 2025, arXiv 2503.19786), text model: pre- and post-norms with 1 + w around
// attention and MLP, GeGLU, norms of the heads of q and k, layers with a sliding window and their
// own rotary frequencies between layers with full attention, a tied head, an embedding times
// sqrt(hidden_size).
#include <nlohmann/json.hpp>

#include "transformer/families/gemma_keys.h"
#include "transformer/families/rope_keys.h"
#include "transformer/families/table.h"
#include "transformer/families/window_keys.h"

namespace trireme {
namespace {

void add_gemma3_keys(Schema& schema) {
  add_gemma_keys(schema,
                 {.positions = "131072",
                  .bos = "2",
                  .eos = "1",
                  .kv_heads = "4",
                  .head_dim = "256",
                  .vocab = "262208",
                  .heads = "8",
                  .tied = true},
                 "null");
  add_pattern_window_keys(schema);
  add_layered_rope_keys(schema, "1000000", "10000");
}

void read_gemma3(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  read_gemma_keys(values, config, report);
  read_pattern_window_keys(values, config, report);
  read_layered_rope_keys(values, config, report);
}

void write_gemma3(const ModelConfig& config, Json& json) {
  write_gemma_keys(config, json);
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
        "norms with 1 + w, before and after attention and MLP; GELU gates; normalized heads of q "
        "and k; windows and frequencies of their own in most layers; embedding times "
        "sqrt(hidden_size)",
    .refused = "soft caps of scores, attention to later tokens, images",
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
