// Keys of "quantization_config" as compressed-tensors writes them (llm-compressor, vLLM).
//
// config_groups are groups of modules, each with a quantization of its weights; one quantization
// for all groups is supported. Which modules are quantized follows from their tensors. Activations
// that the model would quantize dynamically (input_activations, dynamic) stay in full precision
// here.
#pragma once

#include "engine/config/reader.h"
#include "engine/config/schema.h"
#include "engine/io/quantized_source.h"

namespace trireme {

void add_compressed_keys(Schema& schema);
// Errors name the key and its path: "quantization_config.config_groups.group_0.weights.type".
Quantization read_compressed_keys(const ConfigValues& values, ConfigReport& report);

}  // namespace trireme
