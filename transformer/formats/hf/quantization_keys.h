// Keys of "quantization_config" in config.json, which describe how a directory's weights are
// quantized.
#pragma once

#include <span>
#include <string>

#include "engine/config/reader.h"
#include "engine/config/schema.h"
#include "engine/io/quantized_source.h"

namespace trireme {

// Returns the supported methods: "fp8", "gptq", "awq", "compressed-tensors", "mxfp4".
std::span<const char* const> quantization_methods();
// Returns the keys of a method: source of the check and of docs/reference/model-keys.md.
const Schema& quantization_schema(const std::string& method);
// InputError, prefixed with `file`, for an unsupported method or key.
Quantization read_quantization(const Json& json, const std::string& file);

}  // namespace trireme
