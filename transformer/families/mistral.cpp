// Mistral (Jiang et al. 2023): Llama's block, with a sliding window in its first version.
#include "transformer/families/common_keys.h"
#include "transformer/families/table.h"
#include "transformer/families/window_keys.h"

namespace trireme {
namespace {

void add_mistral_keys(Schema& schema) {
  add_llama_keys(schema, {.positions = "131072", .eos = "2", .kv_heads = "8"});
  add_window_key(schema, "4096");
}

void read_mistral(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  read_llama_keys(values, config, report);
  read_window_key(values, config, report);
}

void write_mistral(const ModelConfig& config, Json& json) {
  write_llama_keys(config, json);
  write_window_key(config, json);
}

}  // namespace

constinit const Family kMistralFamily = {.id = ModelFamily::kMistral,
                                         .model_type = "mistral",
                                         .architecture = "MistralForCausalLM",
                                         .title = "Mistral style model",
                                         .models = "Mistral 7B (0.1 with its window), Nemo, Small",
                                         .special = "`sliding_window` in all layers",
                                         .refused = "`layer_types`",
                                         .positions_key = "max_position_embeddings",
                                         .names = {},
                                         .add_keys = add_mistral_keys,
                                         .read = read_mistral,
                                         .write = write_mistral};

}  // namespace trireme
