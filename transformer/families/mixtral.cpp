// Mixtral (Jiang et al. 2024): Llama's block with experts instead of every MLP.
#include "transformer/families/common_keys.h"
#include "transformer/families/expert_keys.h"
#include "transformer/families/table.h"
#include "transformer/families/window_keys.h"

namespace trireme {
namespace {

constexpr ExpertKeys kMixtralExperts{.experts = "num_local_experts",
                                     .experts_default = "8",
                                     .per_token_default = "2",
                                     .balance = "router_aux_loss_coef",
                                     .mixed = false};

void add_mixtral_keys(Schema& schema) {
  add_llama_keys(
      schema,
      {.positions = "131072", .rope_theta = "1000000", .norm_eps = "1e-05", .kv_heads = "8"});
  add_window_key(schema, "null");
  add_expert_keys(schema, kMixtralExperts);
  add_routing_keys(schema);
}

void read_mixtral(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  read_llama_keys(values, config, report);
  read_window_key(values, config, report);
  config.moe = read_expert_keys(values, kMixtralExperts);
  read_routing_keys(values, kMixtralExperts, config.moe, report);
}

void write_mixtral(const ModelConfig& config, Json& json) {
  write_llama_keys(config, json);
  if (config.has_windows()) write_window_key(config, json);
  write_expert_keys(config.moe, kMixtralExperts, json);
  write_routing_keys(config.moe, json);
}

}  // namespace

constinit const Family kMixtralFamily = {.id = ModelFamily::kMixtral,
                                         .model_type = "mixtral",
                                         .architecture = "MixtralForCausalLM",
                                         .title = "Mixtral style model: experts in every layer",
                                         .models = "Mixtral 8x7B, 8x22B",
                                         .special = "experts in every layer, `sliding_window`",
                                         .refused = "jitter of the router's input",
                                         .positions_key = "max_position_embeddings",
                                         .names = {.experts = "block_sparse_moe",
                                                   .expert_gate = "w1",
                                                   .expert_up = "w3",
                                                   .expert_down = "w2"},
                                         .add_keys = add_mixtral_keys,
                                         .read = read_mixtral,
                                         .write = write_mixtral};

}  // namespace trireme
