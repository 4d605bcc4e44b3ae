#include "transformer/peft_adapter.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "engine/io/atomic_file.h"
#include "engine/io/safetensors_directory.h"
#include "engine/io/strict_json.h"
#include "transformer/hf_source.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kConfigFile = "adapter_config.json";
constexpr const char* kWeightsFile = "adapter_model.safetensors";
constexpr const char* kPrefix = "base_model.model.";

// Keys that would make other adapters of these, with the values that do not.
struct Plain {
  const char* key;
  std::vector<Json> values;
};
const std::vector<Plain>& plain_keys() {
  static const std::vector<Plain> keys{{"bias", {"none"}},
                                       {"fan_in_fan_out", {false}},
                                       {"layers_to_transform", {}},
                                       {"layers_pattern", {}},
                                       {"modules_to_save", {}},
                                       {"exclude_modules", {}},
                                       {"rank_pattern", {Json::object()}},
                                       {"alpha_pattern", {Json::object()}},
                                       {"layer_replication", {}},
                                       {"target_parameters", {}},
                                       {"trainable_token_indices", {}},
                                       {"lora_bias", {false}},
                                       {"use_qalora", {false}}};
  return keys;
}

LoraConfig read_config(const std::string& file) {
  const Json json = parse_strict_json<Json>(read_small_file(file), file);
  if (!json.is_object()) fail_input(file, ": is no object");
  const auto get = [&](const char* key) { return json.contains(key) ? json[key] : Json(); };
  if (get("peft_type") != "LORA")
    fail_input(file, ": peft_type ", get("peft_type").dump(), " is not available; LORA is");
  for (const Plain& plain : plain_keys()) {
    const Json value = get(plain.key);
    if (value.is_null() || (value.is_array() && value.empty())) continue;
    if (std::ranges::find(plain.values, value) == plain.values.end())
      fail_input(file, ": ", plain.key, " ", value.dump(), " is not available");
  }
  LoraConfig lora;
  const Json rank = get("r"), alpha = get("lora_alpha"), targets = get("target_modules");
  if (!rank.is_number_integer() || rank.get<int64_t>() < 1 || !alpha.is_number())
    fail_input(file, ": \"r\" must be a number of at least 1 and \"lora_alpha\" a number");
  lora.rank = rank.get<int64_t>();
  lora.alpha = alpha.get<double>();
  lora.rank_stabilised = get("use_rslora") == true;
  lora.dora = get("use_dora") == true;
  // A text is a regular expression of whole names there; one word has to be all of a name.
  if (targets == "all-linear")
    lora.targets = {"all-linear"};
  else if (targets.is_string())
    lora.targets = {concat("^(?:", targets.get<std::string>(), ")$")};
  if (targets.is_array())
    for (const Json& target : targets)
      if (target.is_string()) lora.targets.push_back(target.get<std::string>());
  if (lora.targets.empty())
    fail_input(file,
               ": \"target_modules\" must be a list of names, a regular expression, or "
               "\"all-linear\"");
  return lora;
}

std::vector<std::string> target_names(const ModelConfig& config, const LoraConfig& lora) {
  std::vector<std::string> names;
  for (const ModelParameter& p : adapter_parameters(config, lora)) {
    const std::string layer = p.name.substr(0, p.name.rfind(".lora_"));
    const std::string last = layer.substr(layer.rfind('.') + 1);
    if (std::ranges::find(names, last) == names.end()) names.push_back(last);
  }
  return names;
}

}  // namespace

std::vector<ModelParameter> adapter_parameters(const ModelConfig& config, const LoraConfig& lora) {
  const Model model(config, DType::kF32, Layout{}, split_layers(config.num_layers, 1, {}), lora);
  std::vector<ModelParameter> out;
  for (const ParameterSpec& spec : model.parameters().specs())
    if (spec.adapter)
      out.push_back({spec.name, {spec.shape.dims().begin(), spec.shape.dims().end()}, false});
  return out;
}

PeftAdapter::PeftAdapter(const std::string& directory) : ModelSource(directory) {
  lora_ = read_config((fs::path(directory) / kConfigFile).string());
  const fs::path weights = fs::path(directory) / kWeightsFile;
  if (!fs::is_regular_file(weights))
    fail_input(directory, " holds ", kConfigFile, " and no ", kWeightsFile);
  tensors_ = std::make_unique<SafetensorsDirectory>(weights.string());
}

ParameterPlace PeftAdapter::place(const ModelConfig&, const std::string& parameter) const {
  return {HfSource{kPrefix + parameter}};
}

std::string PeftAdapter::problems(const ModelConfig& config, const LoraConfig& lora) const {
  std::string problems;
  std::set<std::string> known;
  if (adapter_parameters(config, lora).empty())
    fail_input(path(), ": \"target_modules\" ", lora.targets.front(),
               " are no layers of the model");
  for (const ModelParameter& p : adapter_parameters(config, lora)) {
    const std::string name = kPrefix + p.name;
    known.insert(name);
    const SourceTensor* tensor = tensors_->find(name);
    if (tensor == nullptr)
      problems += concat("\n  missing: ", name);
    else if (tensor->shape != p.shape)
      problems += concat("\n  ", name, ": ", shape_text(tensor->shape), " instead of ",
                         shape_text(p.shape));
  }
  for (const SourceTensor& tensor : tensors_->tensors())
    if (!known.contains(tensor.name)) problems += concat("\n  left over: ", tensor.name);
  return problems.substr(0, 2000);
}

void PeftAdapter::check_adapters(const ModelConfig& config) const {
  if (const std::string found = problems(config, lora_); !found.empty())
    fail_input(path(), ": its adapters are not those of the model:", found);
}

void PeftAdapter::check_beginning(const ModelConfig& config, const LoraConfig& lora) const {
  std::string found;
  const auto compare = [&](const char* key, const auto& run, const char* word, const auto& file) {
    if (run != file) found += concat("\n  ", key, " is ", run, ", its ", word, " ", file);
  };
  const auto said = [](bool value) { return std::string(value ? "true" : "false"); };
  compare("finetune.lora.rank", lora.rank, "r", lora_.rank);
  compare("finetune.lora.alpha", lora.alpha, "lora_alpha", lora_.alpha);
  compare("finetune.lora.use_rslora", said(lora.rank_stabilised), "use_rslora",
          said(lora_.rank_stabilised));
  compare("finetune.lora.use_dora", said(lora.dora), "use_dora", said(lora_.dora));
  found += problems(config, lora);
  if (!found.empty()) fail_input(path(), ": training cannot begin with its adapters:", found);
}

bool is_peft_adapter(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(fs::path(path) / kConfigFile, ignored);
}

void write_peft_adapter(const LoraConfig& lora, const ModelConfig& config,
                        const ModelSource& adapters, const std::string& base,
                        const std::string& directory) {
  const std::vector<ModelParameter> parameters = adapter_parameters(config, lora);
  std::vector<SafetensorsSpec> specs;
  for (const ModelParameter& p : parameters) {
    const std::string layer = p.name.substr(0, p.name.rfind(".lora_"));
    const HfSource source = hf_source(config, layer + ".weight");
    if (source.transposed || source.first_row != 0 || source.tensor != layer + ".weight")
      fail_input("adapters of ", layer, " have no place in PEFT's format: it is a part of ",
                 source.tensor, " there");
    const SourceTensor* stored = adapters.tensors().find(adapters.place(config, p.name).tensor);
    if (stored == nullptr) fail_input(adapters.path(), ": has no tensor ", p.name);
    specs.push_back({kPrefix + p.name, stored->dtype.value_or(DType::kF32), p.shape});
  }
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) fail_input("cannot make ", directory, ": ", error.message());
  SafetensorsWriter writer((fs::path(directory) / kWeightsFile).string(), specs,
                           {{"format", "pt"}});
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Shape shape{std::span<const int64_t>(parameters[i].shape)};
    const Buffer buffer("adapter", shape.numel() * dtype_size(specs[i].dtype));
    adapters.read(config, parameters[i], whole_box(parameters[i].shape), 0,
                  buffer.tensor(specs[i].dtype, Shape{shape.numel()}));
    writer.write(buffer.tensor(specs[i].dtype, shape));
  }
  writer.commit();
  const Json json = {{"peft_type", "LORA"},
                     {"task_type", "CAUSAL_LM"},
                     {"base_model_name_or_path", base},
                     {"r", lora.rank},
                     {"lora_alpha", lora.alpha},
                     {"lora_dropout", lora.dropout},
                     {"target_modules", target_names(config, lora)},
                     {"use_rslora", lora.rank_stabilised},
                     {"use_dora", lora.dora},
                     {"bias", "none"},
                     {"fan_in_fan_out", false},
                     {"inference_mode", true}};
  write_file_atomically((fs::path(directory) / kConfigFile).string(), json.dump(2) + "\n");
}

}  // namespace trireme
