// Model families: the values of "model_type" in HuggingFace's config.json.
//
// A family defines three things: the keys of its config.json and their meaning (a Schema, and a
// function that reads them into a ModelConfig), how a ModelConfig is written back, and the names of
// the parameters. It does not define what the layers compute: they read the properties of the
// ModelConfig. Adding a family: docs/reference/models.md.
#pragma once

#include <span>

#include "engine/config/reader.h"
#include "engine/config/schema.h"
#include "transformer/config/model_config.h"

namespace trireme {

// Names of modules and their parameters in HuggingFace's checkpoints. The parameters of layer l are
// named `layers`.l.`module`.`part`.weight and .bias; a norm of a block has no part.
struct ParameterNames {
  const char* token_embedding = "model.embed_tokens";
  const char* position_embedding = "";  // of learned positions; "": none
  const char* layers = "model.layers";
  const char* final_norm = "model.norm";
  const char* head = "lm_head";

  const char* attention_norm = "input_layernorm";
  const char* attention = "self_attn";
  const char* attention_output = "o_proj";  // in the module `attention`
  const char* q_norm = "q_norm";            // in the module `attention`, of models with qk_norm
  const char* k_norm = "k_norm";
  const char* mlp_norm = "post_attention_layernorm";
  const char* attention_post_norm = "";  // of models with post_norms
  const char* mlp_post_norm = "";
  const char* mlp = "mlp";
  const char* mlp_gate = "gate_proj";  // in the module `mlp`; gated MLPs only
  const char* mlp_up = "up_proj";
  const char* mlp_down = "down_proj";

  // Module that contains the router, `router`, and the experts, "experts.0", "experts.1", ...
  const char* experts = "mlp";
  const char* router = "gate";
  const char* expert_gate = "gate_proj";
  const char* expert_up = "up_proj";
  const char* expert_down = "down_proj";
  const char* shared_expert = "shared_experts";                 // in the module `experts`
  const char* selection_bias = "gate.e_score_correction_bias";  // in the module `experts`
};

// Tensors that stack all experts of a layer in published files, in the module `experts`: gate_up
// (E, 2 F, hidden) and down (E, hidden, F), and their biases (E, 2 F) and (E, hidden).
struct StackedExperts {
  const char* gate_up = "";  // "": every expert has tensors of its own
  const char* down = "";
  const char* bias_suffix = "";  // suffix of the bias tensors' names
  bool transposed = false;       // (E, hidden, 2 F) and (E, F, hidden)
  bool interleaved = false;  // outputs of gate_up alternate between gate and up; else gate, then up
};

struct Family {
  ModelFamily id;
  const char* model_type;
  const char* architecture;  // in "architectures"
  const char* title;         // in the configuration reference
  // The family's line of the table in docs/reference/models.md, as Markdown.
  const char* models = "";    // published models
  const char* special = "";   // features, compared with the other families
  const char* refused = "";   // features of its published models that are refused by name
  const char* positions_key;  // key of the longest sequence, for messages
  ParameterNames names;
  bool qk_norm = false;  // RMSNorm of q and k in all models; read() may also set it by a key
  // Files have gate_proj and up_proj of an MLP in one tensor, gate_up_proj; q_proj, k_proj and
  // v_proj in one, qkv_proj.
  bool fused_gate_up = false, fused_qkv = false;
  StackedExperts stacked_experts = {};
  bool layer_types = false;  // read() and write() handle "layer_types": windows or chunks by layer
  // GPT-2's Conv1D: linear layers of the blocks are stored as (in, out), q, k and v in one matrix.
  bool conv1d = false;
  // PEFT with transformers 5 applies adapters of gate_proj, up_proj and down_proj to the fused
  // routed experts only.
  bool peft_adapts_fused_experts = false;
  bool begins_with_bos = false;  // every text that the model was trained on begins with BOS
  // Adds the family's keys; the caller adds "model_type" and the foreign keys (foreign_keys.h).
  void (*add_keys)(Schema& schema);
  // The caller sets `family` and `qk_norm` before, and reads the token ids.
  void (*read)(const ConfigValues& values, ModelConfig& config, ConfigReport& report);
  // Writes the keys that read() reads back; the caller writes "model_type", "architectures",
  // "initializer_range", "tie_word_embeddings" and the token ids.
  void (*write)(const ModelConfig& config, Json& json);
};

// Multimodal model type, of which only the text model is read.
struct MultimodalModel {
  const char* model_type;
  const char* architecture;
  const char* text_type;  // "model_type" of a "text_config" that has none
};
// Returns nullptr for any other model_type.
const MultimodalModel* find_multimodal(const std::string& model_type);

std::span<const Family* const> families();
const Family& family_of(ModelFamily id);
// Returns nullptr for an unknown model_type.
const Family* find_family(const std::string& model_type);
// Returns the keys of a family: source of the checks, the JSON Schema and the reference page.
const Schema& model_schema(ModelFamily id);

inline const ParameterNames& parameter_names(const ModelConfig& config) {
  return family_of(config.family).names;
}

}  // namespace trireme
