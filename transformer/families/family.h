// Model families: what HuggingFace's config.json calls a "model_type".
//
// A family says three things: which keys its config.json has and what they mean (a Schema and a
// function that reads it into a ModelConfig), how a ModelConfig is written back, and what its
// parameters are called. What the layers compute is not said here: they ask the properties of the
// ModelConfig. Adding a family: docs/reference/models.md.
#pragma once

#include <span>

#include "engine/config/reader.h"
#include "engine/config/schema.h"
#include "transformer/config/model_config.h"

namespace trireme {

// The names of modules and of their parameters, as HuggingFace's checkpoints have them. The
// parameters of layer l are `layers`.l.`module`.`part`.weight and .bias.
struct ParameterNames {
  const char* token_embedding = "model.embed_tokens";
  const char* position_embedding = "";  // where positions are learned
  const char* layers = "model.layers";
  const char* final_norm = "model.norm";
  const char* head = "lm_head";

  const char* attention_norm = "input_layernorm";
  const char* attention = "self_attn";
  const char* attention_output = "o_proj";  // in the module `attention`
  const char* mlp_norm = "post_attention_layernorm";
  const char* attention_branch_norm = "";  // with branch_norms
  const char* mlp_branch_norm = "";
  const char* mlp = "mlp";
  const char* mlp_gate = "gate_proj";  // in the module `mlp`; of a gated one
  const char* mlp_up = "up_proj";
  const char* mlp_down = "down_proj";

  const char* experts = "mlp";  // the module with the router `gate` and `experts`.e
  const char* expert_gate = "gate_proj";
  const char* expert_up = "up_proj";
  const char* expert_down = "down_proj";
  const char* shared_expert = "shared_experts";  // in the module `experts`
};

struct Family {
  ModelFamily id;
  const char* model_type;
  const char* architecture;   // of "architectures"
  const char* title;          // of the configuration reference
  const char* positions_key;  // the key of the longest sequence, for messages
  ParameterNames names;
  bool qk_norm = false;      // RMSNorm of each head's q and k
  bool layer_types = false;  // "layer_types" chooses the layers with a window
  // Adds the family's rows; "model_type" and the token ids' neighbours are everybody's.
  void (*add_keys)(Schema& schema);
  // `family` is set; token ids are read by the caller.
  void (*read)(const ConfigValues& values, ModelConfig& config, ConfigReport& report);
  // Adds what read() reads back; "model_type", "architectures" and the keys that all have are not
  // its.
  void (*write)(const ModelConfig& config, Json& json);
};

std::span<const Family* const> families();
const Family& family_of(ModelFamily id);
// nullptr: there is none.
const Family* find_family(const std::string& model_type);
// The keys of a family, from which the checks, the JSON Schema and the reference page are made.
const Schema& model_schema(ModelFamily id);

inline const ParameterNames& parameter_names(const ModelConfig& config) {
  return family_of(config.family).names;
}

}  // namespace trireme
