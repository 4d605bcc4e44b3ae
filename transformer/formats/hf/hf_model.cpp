#include "transformer/formats/hf/hf_model.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/config/parse.h"
#include "engine/io/input_file.h"
#include "engine/io/quantized_source.h"
#include "transformer/families/family.h"
#include "transformer/formats/hf/fused_experts.h"
#include "transformer/formats/hf/quantization_keys.h"
#include "transformer/formats/load_config.h"
#include "transformer/formats/note_once.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

// Prefix of the file's tensor names that corresponds to `prefix`, the first part of our names.
std::string spelling_of(const std::string& prefix, const TensorSource& tensors) {
  for (const std::string& theirs : {"language_model." + prefix, prefix + "language_model.", prefix})
    for (const SourceTensor& tensor : tensors.tensors())
      if (tensor.name.starts_with(theirs)) return theirs;
  return "";
}

// Name of the head's tensor; "": none.
std::string head_name(const ModelConfig& config, const TensorSource& tensors) {
  const std::string head = concat(parameter_names(config).head, ".weight");
  for (const std::string& name : {head, "language_model." + head})
    if (tensors.find(name) != nullptr) return name;
  return "";
}

}  // namespace

std::unique_ptr<TensorSource> open_hf_tensors(const std::string& directory, const Json& json) {
  auto files = std::make_unique<SafetensorsDirectory>(directory);
  if (!json.is_object() || !json.contains("quantization_config") ||
      json["quantization_config"].is_null())
    return files;
  return dequantized(std::move(files),
                     read_quantization(json["quantization_config"], model_config_file(directory)));
}

bool has_head_of_its_own(const ModelConfig& config, const TensorSource& tensors) {
  const std::string head = head_name(config, tensors);
  const std::string table = concat(parameter_names(config).token_embedding, ".weight");
  const std::string prefix = table.substr(0, table.find('.') + 1);
  const SourceTensor* const a = tensors.find(head);
  const SourceTensor* const b =
      tensors.find(spelling_of(prefix, tensors) + table.substr(prefix.size()));
  return a != nullptr && b != nullptr && !same_values(tensors, *a, *b);
}

HfModel::HfModel(const std::string& directory) : ModelSource(directory) {
  const std::string file = model_config_file(directory);
  const Json json = parse_published_json_file(file);
  settings_ = json.dump();
  std::vector<std::string> notes;
  config_ = load_model_config(directory, notes);
  for (const std::string& note : notes) note_once(file, note);
  tensors_ = open_hf_tensors(directory, json);
  head_ = head_name(config_, *tensors_);
  const std::string table = parameter_names(config_).token_embedding;
  prefix_ = table.substr(0, table.find('.') + 1);
  theirs_ = spelling_of(prefix_, *tensors_);
  const bool stacked = *family_of(config_.family).stacked_experts.gate_up != 0;
  fused_experts_ = !stacked && has_fused_experts(*tensors_);
}

std::string HfModel::tokenizer() const {
  for (const char* name : {"tokenizer.json", "tokenizer.model"})
    if (std::string file = (fs::path(path()) / name).string(); is_input_file(file)) return file;
  return "";
}

ParameterMapping HfModel::place(const ModelConfig& config, const std::string& parameter) const {
  if (mtp_layer_of(config, parameter) >= 0) return {HfSource{parameter}};
  if (!head_.empty() && parameter == concat(parameter_names(config).head, ".weight"))
    return {HfSource{head_}};
  HfSource source = hf_source(config, parameter);
  if (fused_experts_) source = fused_expert_source(config, parameter, std::move(source));
  if (source.tensor.starts_with(prefix_)) source.tensor.replace(0, prefix_.size(), theirs_);
  if (source.matrices > 0 && parameter.ends_with(".weight"))
    if (const SourceTensor* const stack = tensors_->find(source.tensor);
        stack != nullptr && stack->quantized)
      source.transposed = false;  // MXFP4 is stored as (experts, out, in)
  const bool table = parameter == concat(parameter_names(config).token_embedding, ".weight");
  if (table && config.tie_word_embeddings && !head_.empty() &&
      tensors_->find(source.tensor) == nullptr)
    return {HfSource{head_}};
  return {std::move(source)};
}

bool HfModel::is_ignored(const ModelConfig& config, const std::string& tensor) const {
  if (hf_tensor_is_ignored(config, tensor)) return true;
  // A copy of the tied table. With other values the head is untied, and a configuration that ties
  // it must not lose it.
  if (tensor == head_) return config_.tie_word_embeddings;
  if (theirs_.find("language_model.") == std::string::npos || tensor.starts_with(theirs_))
    return false;
  // Vision parts of a multimodal model.
  return std::ranges::any_of(
      std::array{"vision_tower.", "vision_model.", "multi_modal_projector."},
      [&](const char* part) { return tensor.find(part) != std::string::npos; });
}

bool is_hf_model(const std::string& path) {
  if (path.empty()) return false;
  std::error_code ignored;
  const fs::path folder = path;
  if (!is_input_file((folder / "config.json").string())) return false;
  if (holds_safetensors(path)) return true;
  for (const char* of_a_run : {"manifest.json", "latest", "checkpoints", "resolved_config.json"})
    if (fs::exists(folder / of_a_run, ignored)) return false;
  return true;
}

}  // namespace trireme
