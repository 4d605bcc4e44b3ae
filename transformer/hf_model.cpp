#include "transformer/hf_model.h"

#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "engine/config/parse.h"
#include "engine/io/quantized_source.h"
#include "engine/observe/log.h"
#include "transformer/families/family.h"
#include "transformer/load_config.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

// What begins with the name of a file. A directory is opened several times where it is base, source of defaults and
// tokenizer at once, and by several names.
void say_once(const std::string& file, const std::string& line) {
  static std::mutex mutex;
  static std::set<std::string> said;
  const std::lock_guard lock(mutex);
  std::error_code ignored;
  const std::string place = fs::weakly_canonical(file, ignored).string();
  if (said.insert(concat(place, line.substr(file.size()))).second) log_info(line);
}

// "quantization_config" of config.json.
Quantization read_quantization(const Json& json, const std::string& file) {
  const auto word = [&](const char* key, const std::string& fallback) {
    return json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : fallback;
  };
  const auto number = [&](const char* key, int64_t fallback) {
    return json.contains(key) && json[key].is_number_integer() ? json[key].get<int64_t>()
                                                               : fallback;
  };
  const std::string method = json.is_object() ? word("quant_method", "") : "";
  Quantization q;
  if (method == "fp8") {
    const Json block = json.value("weight_block_size", Json());
    if (!block.is_array() || block.size() != 2 || !block[0].is_number_unsigned() ||
        !block[1].is_number_unsigned() || block[0] == 0 || block[1] == 0)
      fail_input(file,
                 ": quantization_config: fp8 is read with a weight_block_size of two numbers");
    q.block_rows = block[0].get<int64_t>();
    q.block_columns = block[1].get<int64_t>();
    return q;
  }
  q.bits = number("bits", number("w_bit", 4));
  q.group_size = number("group_size", number("q_group_size", 128));
  if (q.group_size != -1 && q.group_size < 1)
    fail_input(file, ": quantization_config.group_size is ", q.group_size);
  if (method == "gptq" && (q.bits == 4 || q.bits == 8)) {
    q.method = Quantization::Method::kGptq;
    q.zeros_as_they_are = word("checkpoint_format", "gptq") == "gptq_v2";
    return q;
  }
  if (method == "awq" && q.bits == 4 && word("version", "gemm") == "gemm") {
    q.method = Quantization::Method::kAwq;
    return q;
  }
  fail_input(file, ": quantization_config ", json.dump().substr(0, 200),
             " is not read; fp8 in blocks, gptq of 4 and 8 bits and awq (gemm) of 4 bits are");
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
  const std::string file = model_config_file(directory);
  const Json json = parse_json_file(file);
  settings_ = json.dump();
  std::optional<Quantization> quantization;
  if (json.is_object() && json.contains("quantization_config") &&
      !json["quantization_config"].is_null())
    quantization = read_quantization(json["quantization_config"], file);
  std::vector<std::string> notes;
  config_ = load_model_config(directory, notes);
  for (const std::string& note : notes) say_once(file, note);
  auto files = std::make_unique<SafetensorsDirectory>(directory);
  if (quantization.has_value())
    tensors_ = dequantised(std::move(files), *quantization);
  else
    tensors_ = std::move(files);
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
  if (hf_tensor_is_ignored(config, tensor)) return true;
  if (theirs_.find("language_model.") == std::string::npos || tensor.starts_with(theirs_))
    return false;
  // Beside the language model: what sees images, and the head of a tied one under any name.
  return (config.tie_word_embeddings && tensor.ends_with("lm_head.weight")) ||
         tensor.find("vision_tower.") != std::string::npos ||
         tensor.find("multi_modal_projector.") != std::string::npos;
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
