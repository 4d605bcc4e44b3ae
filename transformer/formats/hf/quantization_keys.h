// Keys of "quantization_config" in config.json: how the weights of a directory are quantised.
#pragma once

#include <span>
#include <string>

#include "engine/config/reader.h"
#include "engine/config/schema.h"
#include "engine/io/quantized_source.h"

namespace trireme {

// The methods that are read: "fp8", "gptq", "awq", "compressed-tensors".
std::span<const char* const> quantization_methods();
// The keys of a method, from which the check and docs/reference/model-keys.md are made.
const Schema& quantization_schema(const std::string& method);
// InputError, which begins with `file`, for a method or a key that is not read.
Quantization read_quantization(const Json& json, const std::string& file);

}  // namespace trireme
