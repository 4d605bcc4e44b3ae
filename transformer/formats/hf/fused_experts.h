// Fused experts: all experts of a layer in two tensors, the in-memory layout of transformers 5,
// written by save_pretrained(DIR, save_original_format=False). For E experts of width I:
//
//   model.layers.L.mlp.experts.gate_up_proj   (E, 2 I, hidden): gate, then up, of each expert
//   model.layers.L.mlp.experts.down_proj      (E, hidden, I)
//
// The module is "mlp" in every family that is read in this layout; there, Mixtral's router is
// model.layers.L.mlp.gate.
#pragma once

#include "engine/io/tensor_source.h"
#include "transformer/formats/hf/hf_source.h"

namespace trireme {

// Returns whether the files hold fused experts.
bool has_fused_experts(const TensorSource& tensors);
// Returns the tensor and rows that store a parameter in files with fused experts; they differ from
// `source` only for experts and their router.
HfSource fused_expert_source(const ModelConfig& config, const std::string& parameter,
                             HfSource source);

}  // namespace trireme
