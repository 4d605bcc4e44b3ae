// Keys of config.json about experts that all families with experts have.
#pragma once

#include "engine/config/reader.h"
#include "engine/config/schema.h"
#include "transformer/config/moe_config.h"

namespace trireme {

inline constexpr double kMaxExperts = 1 << 16;

// A family's words for what all have, and transformers' defaults.
struct ExpertKeys {
  const char* experts;  // the key of their number
  const char* experts_default;
  const char* per_token_default;
  const char* balance;  // the key of the balancing loss's weight
  const char* balance_default = "0.001";
  // The experts' width has a key of its own, "moe_intermediate_size", and whether a token's weights
  // are normalised is a choice, "norm_topk_prob"; else all MLPs are experts and the weights add up
  // to 1.
  bool mixed;
  const char* width_default = "1408";
  bool normalise_default = false;
};

// The number of experts, what a token takes, their width. Before the family's own keys.
void add_expert_keys(Schema& schema, const ExpertKeys& keys);
MoeConfig read_expert_keys(const ConfigValues& values, const ExpertKeys& keys);
void write_expert_keys(const MoeConfig& moe, const ExpertKeys& keys, Json& json);

// How routing is trained: keys of ours, the same in all families. After the family's own keys.
// read_ also checks that a token's choice of experts can be met.
void add_routing_keys(Schema& schema);
void read_routing_keys(const ConfigValues& values, const ExpertKeys& keys, MoeConfig& moe,
                       ConfigReport& report);
void write_routing_keys(const MoeConfig& moe, Json& json);

// Which layers have experts, in Qwen's words: "decoder_sparse_step", "mlp_only_layers".
void add_qwen_layer_keys(Schema& schema);
void read_qwen_layer_keys(const ConfigValues& values, MoeConfig& moe, ConfigReport& report);
void write_qwen_layer_keys(const MoeConfig& moe, Json& json);

}  // namespace trireme
