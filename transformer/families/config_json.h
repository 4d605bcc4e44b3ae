// HuggingFace's config.json of any family: to a ModelConfig and back.
#pragma once

#include <string>

#include "engine/config/reader.h"
#include "transformer/config/model_config.h"

namespace trireme {

// Reads a config.json object; problems are added to `report` with their JSON paths under `path`.
ModelConfig read_model_config(const Json& json, const std::string& path, ConfigReport& report);
// The object read_model_config() reads back to the same value; what a checkpoint stores.
Json model_config_to_json(const ModelConfig& config);

}  // namespace trireme
