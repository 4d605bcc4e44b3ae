// Keys of "quantization_config" as compressed-tensors writes them (llm-compressor, vLLM).
//
// Groups of modules, config_groups, each have a quantization of their weights: one for all is read.
// Tensors themselves show which modules have it. Activations that are quantised as they are
// computed (input_activations, dynamic) are computed in full precision here.
#pragma once

#include "engine/config/reader.h"
#include "engine/config/schema.h"
#include "engine/io/quantized_source.h"

namespace trireme {

void add_compressed_keys(Schema& schema);
// Errors name the key and its place: "quantization_config.config_groups.group_0.weights.type".
Quantization read_compressed_keys(const ConfigValues& values, ConfigReport& report);

}  // namespace trireme
