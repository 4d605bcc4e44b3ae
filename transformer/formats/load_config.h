// Configurations in files of others.
#pragma once

#include <string>
#include <vector>

#include "transformer/config/model_config.h"

namespace trireme {

// The configuration of a HuggingFace directory, of a .gguf, or of a JSON file. In a config.json,
// which others write, keys that are not known here are passed over with a note where they are null,
// and what it says of quantised weights is left out; any other unknown key is an error, as are all
// unknown keys of JSON files of another name, which are ours. A tied head of which a directory
// holds other values than the embedding's is not tied. Appends to `notes`, a line each. Throws
// InputError with all problems.
ModelConfig load_model_config(const std::string& path, std::vector<std::string>& notes);

// `path` itself, or the config.json in it when it is a directory. Throws InputError when absent.
std::string model_config_file(const std::string& path);

// Why a path that is no model of others nearly is one, and what to give: weights without
// config.json, a lone .safetensors file, adapters, the name of a model on a hub. "" or "; ...".
std::string model_advice(const std::string& path);

}  // namespace trireme
