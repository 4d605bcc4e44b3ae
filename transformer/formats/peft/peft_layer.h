// A parameter of an adapter as PEFT's files name it: the tensor of a layer, or the first, second or
// third part of one (GPT-2's c_attn, peft_adapter.h).
#pragma once

#include <string>
#include <vector>

#include "transformer/formats/model_source.h"

namespace trireme {

inline constexpr const char* kPeftPrefix = "base_model.model.";

struct PeftLayer {
  std::string name;  // HuggingFace's
  int64_t part = 0, parts = 1;
  std::string suffix;  // ".lora_A.weight", ".lora_B.weight", ".lora_magnitude_vector"
  // Theirs are (r, V) and (C, r): our B and A, transposed.
  bool embedding = false;
  bool is_a() const { return suffix == ".lora_A.weight"; }
  bool is_b() const { return suffix == ".lora_B.weight"; }
  std::string tensor() const;
  // Of the tensor, of which p is all or a part. diagonal: B of several parts is the diagonal of
  // theirs.
  std::vector<int64_t> shape(const ModelParameter& p, bool diagonal) const;
};

// parameter: of an adapter, under our name.
PeftLayer peft_layer(const ModelConfig& config, const std::string& parameter);

}  // namespace trireme
