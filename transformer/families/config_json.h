// Conversion of HuggingFace's config.json, of any family, to a ModelConfig and back.
#pragma once

#include <string>

#include "engine/config/reader.h"
#include "transformer/config/model_config.h"

namespace trireme {

// Reads a config.json object, or the text model's part of a multimodal one. Adds problems to
// `report`, with their JSON paths under `path`; if there are errors, the result is incomplete.
ModelConfig read_model_config(const Json& json, const std::string& path, ConfigReport& report);
// Inverse of read_model_config(): returns an object that reads back to the same value. Checkpoints
// store it.
Json model_config_to_json(const ModelConfig& config);

}  // namespace trireme
