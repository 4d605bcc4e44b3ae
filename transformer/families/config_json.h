// HuggingFace's config.json of any family: conversion to a ModelConfig and back.
#pragma once

#include <string>

#include "engine/config/reader.h"
#include "transformer/config/model_config.h"

namespace trireme {

// Reads a config.json object; problems are added to `report` with their JSON paths under `path`.
ModelConfig read_model_config(const Json& json, const std::string& path, ConfigReport& report);
// Inverse of read_model_config(): an object that reads back to the same value. Checkpoints store
// it.
Json model_config_to_json(const ModelConfig& config);

}  // namespace trireme
