// Qwen2 and Qwen2.5 (Yang et al. 2024): Llama's block with biases of q, k and v; some models have a
// sliding window in the upper layers.
#include "transformer/families/common_keys.h"
#include "transformer/families/table.h"
#include "transformer/families/window_keys.h"

namespace trireme {
namespace {

constexpr WindowLayers kQwen2Windows = WindowLayers::kFromMax;

void add_qwen2_keys(Schema& schema) {
  add_llama_keys(schema, {.positions = "32768", .bos = "null", .eos = "null", .kv_heads = "32"});
  add_qwen_window_keys(schema, kQwen2Windows);
  // transformers does not read it: q, k and v have biases, o has none.
  schema.refused("attention_bias", {"true"}, "q, k and v of this family have biases");
}

void read_qwen2(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  read_llama_keys(values, config, report);
  config.attention_bias = true;  // of q, k and v; o has none
  read_qwen_window_keys(values, kQwen2Windows, config, report);
}

void write_qwen2(const ModelConfig& config, Json& json) {
  write_llama_keys(config, json);
  write_qwen_window_keys(config, kQwen2Windows, json);
}

}  // namespace

constinit const Family kQwen2Family = {
    .id = ModelFamily::kQwen2,
    .model_type = "qwen2",
    .architecture = "Qwen2ForCausalLM",
    .title = "Qwen2 style model",
    .models = "Qwen2, Qwen2.5",
    .special =
        "biases of q, k and v; a window from layer `max_window_layers` on, or by `layer_types`",
    .refused = "several dimensions of positions (Qwen2-VL)",
    .positions_key = "max_position_embeddings",
    .names = {},
    .layer_types = true,
    .add_keys = add_qwen2_keys,
    .read = read_qwen2,
    .write = write_qwen2};

}  // namespace trireme
