// Keys of config.json that the rows of a family do not name: transformers' own without meaning for
// the numbers, those of other programs, and those by which other architectures name their
// mathematics.
#pragma once

#include "transformer/families/family.h"

namespace trireme {

// After the family's rows. A key that the family has already keeps its row.
void add_foreign_keys(const Family& family, Schema& schema);

// Whether `architectures` of config.json names a class of the family: "LlamaForCausalLM",
// "LlamaModel". null and an empty list name none and pass. Errors are reported.
void check_architectures(const Family& family, const ConfigValues& values, ConfigReport& report);

// "layer_types" of a family that does not choose layers by it: it must say what the layers have.
void check_layer_types(const ConfigValues& values, const ModelConfig& config, ConfigReport& report);

}  // namespace trireme
