// Configurations in files of others.
#pragma once

#include <string>
#include <vector>

#include "transformer/model_config.h"

namespace trireme {

// The configuration of a HuggingFace directory, of a .gguf, or of a JSON file. In a config.json, which others
// write, keys that are not known here are noted and passed over, and so is what it says of quantised weights;
// keys that are known to change the mathematics stay errors, and JSON files of another name are ours and
// strict. Appends to `notes`, a line each. Throws InputError with all problems.
ModelConfig load_model_config(const std::string& path, std::vector<std::string>& notes);

// Why a path that is no model of others nearly is one, and what to give: weights without config.json, a lone
// .safetensors file, adapters, the name of a model on a hub. "" or "; ...".
std::string model_advice(const std::string& path);

}  // namespace trireme
