// Configurations of third-party models.
#pragma once

#include <string>
#include <vector>

#include "transformer/config/model_config.h"

namespace trireme {

// Returns the configuration of a HuggingFace directory, of a .gguf, or of a JSON file.
//
// In a third-party config.json, unknown keys with value null are skipped with a note; any other
// unknown key is an error. Its quantization_config is not part of the result. In JSON files of
// another name, which are ours, all unknown keys are errors. A tied head becomes untied if the
// directory's head has other values than the embedding. Appends to `notes`, one line each. Throws
// InputError with all problems.
ModelConfig load_model_config(const std::string& path, std::vector<std::string>& notes);

// Content of a third-party config.json, read without the weights.
struct ThirdPartyConfig {
  std::string file = {};                  // path of the JSON file
  ModelConfig config = {};                // a tied head is tied here, whatever the weights hold
  std::vector<std::string> notes = {};    // one line each, without the file's name
  std::vector<std::string> ignored = {};  // JSON paths of given keys that have no effect
  std::string quantization = {};          // of the published weights, "GPTQ 4 bits"; "": none
};
// `path`: a JSON file of any name, read as load_model_config() reads a config.json, or a directory
// with config.json. Throws InputError with all problems, those of quantization_config too.
ThirdPartyConfig read_third_party_config(const std::string& path);

// Returns `path`, or the config.json in it if it is a directory. Throws InputError if a directory
// has none.
std::string model_config_file(const std::string& path);

// Returns advice, "; ...", for a path that is almost a third-party model (weights without
// config.json, a lone .safetensors file, adapters, the name of a model on a hub), or "".
std::string model_advice(const std::string& path);

}  // namespace trireme
