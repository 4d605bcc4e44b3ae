// Mapping from an adapter's parameter to PEFT's files: the tensor of a layer, or one of three parts
// of it (GPT-2's c_attn, peft_adapter.h).
#pragma once

#include <string>
#include <vector>

#include "transformer/formats/model_source.h"

namespace trireme {

inline constexpr const char* kPeftPrefix = "base_model.model.";

struct PeftLayer {
  std::string name;             // HuggingFace's name
  int64_t part = 0, parts = 1;  // index among the parts of a fused layer; their number
  std::string suffix;           // ".lora_A.weight", ".lora_B.weight", ".lora_magnitude_vector"
  // Adapter of an embedding: its tensors are (r, V) and (C, r), our B and A transposed.
  bool embedding = false;
  bool is_a() const { return suffix == ".lora_A.weight"; }
  bool is_b() const { return suffix == ".lora_B.weight"; }
  std::string tensor() const;
  // Shape of the file's tensor that holds `p`, alone or as one of `parts`. diagonal: B of several
  // parts is block-diagonal in the file.
  std::vector<int64_t> shape(const ModelParameter& p, bool diagonal) const;
};

// parameter: our name of an adapter's parameter.
PeftLayer peft_layer(const ModelConfig& config, const std::string& parameter);

}  // namespace trireme
