// Keys of "quantization_config" in config.json: the quantization of a directory's weights.
#pragma once

#include <span>
#include <string>

#include "engine/config/reader.h"
#include "engine/config/schema.h"
#include "engine/io/quantized_source.h"

namespace trireme {

// Supported methods: "fp8", "gptq", "awq", "compressed-tensors".
std::span<const char* const> quantization_methods();
// Keys of a method: source of the check and of docs/reference/model-keys.md.
const Schema& quantization_schema(const std::string& method);
// InputError, prefixed with `file`, for an unsupported method or key.
Quantization read_quantization(const Json& json, const std::string& file);

}  // namespace trireme
