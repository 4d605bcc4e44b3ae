// Keys of "quantization_config" as compressed-tensors writes them (llm-compressor, vLLM).
//
// config_groups are groups of modules, each with a quantization of its weights; all groups must
// have the same one. The tensors determine which modules are quantized. Activations that the model
// would quantize dynamically (input_activations, dynamic) stay in full precision here.
#pragma once

#include "engine/config/reader.h"
#include "engine/config/schema.h"
#include "engine/io/quantized_source.h"

namespace trireme {

void add_compressed_keys(Schema& schema);
// Reported errors name the key and its path:
// "quantization_config.config_groups.group_0.weights.type".
Quantization read_compressed_keys(const ConfigValues& values, ConfigReport& report);

}  // namespace trireme
