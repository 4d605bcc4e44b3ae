// Experts of a layer in two tensors, as transformers 5 has them in memory and writes them with
// save_pretrained(DIR, save_original_format=False), for E experts of width I:
//
//   model.layers.L.mlp.experts.gate_up_proj   (E, 2 I, hidden): gate, then up, of each expert
//   model.layers.L.mlp.experts.down_proj      (E, hidden, I)
//
// The module is "mlp" in every family; Mixtral's router is model.layers.L.mlp.gate there.
#pragma once

#include "engine/io/tensor_source.h"
#include "transformer/formats/hf/hf_source.h"

namespace trireme {

// Whether the files hold experts so.
bool has_fused_experts(const TensorSource& tensors);
// The place of a parameter in such files, where it is one of the experts or their router; else
// `source`, its place in others.
HfSource fused_expert_source(const ModelConfig& config, const std::string& parameter,
                             HfSource source);

}  // namespace trireme
