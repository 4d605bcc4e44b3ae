// Expert keys of config.json that all MoE families share.
#pragma once

#include "engine/config/reader.h"
#include "engine/config/schema.h"
#include "transformer/config/model_config.h"

namespace trireme {

inline constexpr double kMaxExperts = 1 << 16;

// Key names of a family for the shared properties, and transformers' defaults.
struct ExpertKeys {
  const char* experts;  // key of the number of experts
  const char* experts_default;
  const char* per_token_default;
  const char* balance;  // key of the balancing loss's weight
  const char* balance_default = "0.001";
  // True: the experts' width has its own key, "moe_intermediate_size", and "norm_topk_prob"
  // determines whether a token's weights are normalized. False: the width is "intermediate_size",
  // all MLPs are experts, and the weights add up to 1.
  bool mixed;
  const char* width_default = "1408";
  bool normalize_default = false;
};

// Number of experts, experts per token and their width. Add before the family's own keys.
void add_expert_keys(Schema& schema, const ExpertKeys& keys);
MoeConfig read_expert_keys(const ConfigValues& values, const ExpertKeys& keys);
void write_expert_keys(const MoeConfig& moe, const ExpertKeys& keys, Json& json);

// Training of the router: Trireme keys, the same in all families. Add after the family's own keys.
// read_routing_keys() requires the family's keys to be read before. It also checks that the groups
// divide the experts, that enough experts can be selected for a token, and that noisy gating has
// softmax scores.
void add_routing_keys(Schema& schema);
void read_routing_keys(const ConfigValues& values, const ExpertKeys& keys, MoeConfig& moe,
                       ConfigReport& report);
void write_routing_keys(const MoeConfig& moe, Json& json);

// Adds a note to `report` that the multi-token prediction layers, counted by `key`, are not run;
// none if there are no such layers or the file lacks `key`.
void note_extra_layers(const ConfigValues& values, const char* key, const ModelConfig& config,
                       ConfigReport& report);

// Sparse layers by Qwen's keys: "decoder_sparse_step", "mlp_only_layers".
void add_qwen_layer_keys(Schema& schema);
void read_qwen_layer_keys(const ConfigValues& values, MoeConfig& moe, ConfigReport& report);
void write_qwen_layer_keys(const MoeConfig& moe, Json& json);

}  // namespace trireme
