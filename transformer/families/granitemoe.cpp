// Granite with experts (IBM 2024): Granite's block, with experts whose tensors are stacked in place
// of every MLP.
#include <nlohmann/json.hpp>

#include "transformer/families/common_keys.h"
#include "transformer/families/expert_keys.h"
#include "transformer/families/granite_keys.h"
#include "transformer/families/table.h"

namespace trireme {
namespace {

constexpr ExpertKeys kGraniteExperts{.experts = "num_local_experts",
                                     .experts_default = "8",
                                     .per_token_default = "2",
                                     .balance = "router_aux_loss_coef",
                                     .mixed = false};

void add_granitemoe_keys(Schema& schema) {
  add_granite_keys(schema);
  add_expert_keys(schema, kGraniteExperts);
  add_routing_keys(schema);
}

void read_granitemoe(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  read_granite_keys(values, config, report);
  config.moe = read_expert_keys(values, kGraniteExperts);
  read_routing_keys(values, kGraniteExperts, config.moe, report);
}

void write_granitemoe(const ModelConfig& config, Json& json) {
  write_granite_keys(config, json);
  write_expert_keys(config.moe, kGraniteExperts, json);
  write_routing_keys(config.moe, json);
}

}  // namespace

constinit const Family kGraniteMoeFamily = {
    .id = ModelFamily::kGraniteMoe,
    .model_type = "granitemoe",
    .architecture = "GraniteMoeForCausalLM",
    .title = "Granite style model with experts in every layer",
    .models = "Granite 3.0 and 3.1 with experts: 1B-A400M, 3B-A800M",
    .special = "`granite`'s block; experts in every layer, in files stacked in one tensor",
    .refused = "shared experts and Mamba layers (`granitemoeshared`, `granitemoehybrid`)",
    .positions_key = "max_position_embeddings",
    .names = {.experts = "block_sparse_moe",
              .router = "router.layer",
              .selection_bias = "router.e_score_correction_bias"},
    .stacked_experts = {.gate_up = "input_linear.weight", .down = "output_linear.weight"},
    .add_keys = add_granitemoe_keys,
    .read = read_granitemoe,
    .write = write_granitemoe};

}  // namespace trireme
