// Keys of config.json that no family defines: keys of transformers without effect on the results,
// keys of other programs, and keys that select other architectures.
#pragma once

#include "transformer/families/family.h"

namespace trireme {

// Adds the foreign keys to a family's schema. Call after the family's keys are added; a key that
// the family defines is left unchanged.
void add_foreign_keys(const Family& family, Schema& schema);

// Checks that `architectures` of config.json names a class of the family: "LlamaForCausalLM",
// "LlamaModel". null and an empty list pass. Reports errors.
void check_architectures(const Family& family, const ConfigValues& values, ConfigReport& report);

// Checks "layer_types" of a family that does not select layers by it: it must match the windows of
// `config`. Reports errors.
void check_layer_types(const ConfigValues& values, const ModelConfig& config, ConfigReport& report);

}  // namespace trireme
