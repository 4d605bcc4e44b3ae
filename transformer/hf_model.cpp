#include "transformer/hf_model.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/config/parse.h"
#include "engine/io/safetensors_directory.h"
#include "transformer/families/family.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

ModelConfig read_config_file(const std::string& directory) {
  const std::string file = model_config_file(directory);
  ConfigReport report;
  ModelConfig config = read_model_config(parse_json_file(file), "", report);
  report.throw_if_errors(file);
  return config;
}

// What the files' names begin with in the place of `prefix`, the first part of ours.
std::string spelling_of(const std::string& prefix, const TensorSource& tensors) {
  for (const std::string& theirs : {"language_model." + prefix, prefix + "language_model.", prefix})
    for (const SourceTensor& tensor : tensors.tensors())
      if (tensor.name.starts_with(theirs)) return theirs;
  return "";
}

}  // namespace

HfModel::HfModel(const std::string& directory) : ModelSource(directory) {
  config_ = read_config_file(directory);
  tensors_ = std::make_unique<SafetensorsDirectory>(directory);
  const std::string table = parameter_names(config_).token_embedding;
  prefix_ = table.substr(0, table.find('.') + 1);
  theirs_ = spelling_of(prefix_, *tensors_);
}

std::string HfModel::tokenizer() const {
  std::error_code ignored;
  for (const char* name : {"tokenizer.json", "tokenizer.model"})
    if (fs::is_regular_file(fs::path(path()) / name, ignored))
      return (fs::path(path()) / name).string();
  return "";
}

ParameterPlace HfModel::place(const ModelConfig& config, const std::string& parameter) const {
  ParameterPlace place{hf_source(config, parameter)};
  if (place.tensor.starts_with(prefix_)) place.tensor.replace(0, prefix_.size(), theirs_);
  return place;
}

bool HfModel::is_ignored(const ModelConfig& config, const std::string& tensor) const {
  // Beside the language model: what sees images.
  if (theirs_.find("language_model.") != std::string::npos && !tensor.starts_with(theirs_))
    return tensor.find("vision_tower.") != std::string::npos ||
           tensor.find("multi_modal_projector.") != std::string::npos;
  return hf_tensor_is_ignored(config, tensor);
}

bool is_hf_model(const std::string& path) {
  if (path.empty()) return false;
  std::error_code ignored;
  const fs::path folder = path;
  if (!fs::is_regular_file(folder / "config.json", ignored)) return false;
  if (holds_safetensors(path)) return true;
  for (const char* of_a_run : {"manifest.json", "latest", "checkpoints", "resolved_config.json"})
    if (fs::exists(folder / of_a_run, ignored)) return false;
  return true;
}

}  // namespace trireme
