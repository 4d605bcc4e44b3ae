#include "transformer/peft_adapter.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
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
constexpr const char* kFusedLayer = "c_attn";

// Keys that would make other adapters of these, with the values that do not.
struct Plain {
  const char* key;
  std::vector<Json> values;
};
const std::vector<Plain>& plain_keys() {
  static const std::vector<Plain> keys{{"bias", {"none"}},        {"layers_to_transform", {}},
                                       {"layers_pattern", {}},    {"modules_to_save", {}},
                                       {"exclude_modules", {}},   {"layer_replication", {}},
                                       {"target_parameters", {}}, {"trainable_token_indices", {}},
                                       {"lora_bias", {false}},    {"use_qalora", {false}}};
  return keys;
}

// What a part of a model's name is in PEFT's files: a layer, or the first, second or third part of one.
struct Layer {
  std::string name;
  int64_t part = 0, parts = 1;
  std::string suffix;  // ".lora_A.weight", ".lora_B.weight", ".lora_magnitude_vector"
  bool is_a() const { return suffix == ".lora_A.weight"; }
  bool is_b() const { return suffix == ".lora_B.weight"; }
};

Layer layer_of(const ModelConfig& config, const std::string& parameter) {
  const size_t end = parameter.rfind(".lora_");
  const std::string ours = parameter.substr(0, end);
  Layer layer{.name = ours, .suffix = parameter.substr(end)};
  const HfSource source = hf_source(config, ours + ".weight");
  const std::string theirs = source.tensor.substr(0, source.tensor.rfind('.'));
  if (theirs == ours) return layer;
  layer.name = theirs;
  layer.part = source.first_row / config.hidden_size;
  layer.parts = 3;
  return layer;
}

// Of the tensor there, of which p is all or a part.
std::vector<int64_t> shape_of(const Layer& layer, const ModelParameter& p, bool diagonal) {
  std::vector<int64_t> shape = p.shape;
  if (!layer.is_a() || diagonal) shape[0] *= layer.parts;
  if (layer.is_b() && diagonal) shape[1] *= layer.parts;
  return shape;
}

double fused_alpha(const LoraConfig& lora) {  // of three times the rank
  return lora.alpha * (lora.rank_stabilised ? std::sqrt(3.0) : 3.0);
}

// Whether the ranks of layers that differ are those of c_attn as it is written here. InputError for others.
bool read_patterns(const std::string& file, const Json& ranks, const Json& alphas,
                   const LoraConfig& lora) {
  const auto given = [](const Json& json) { return !json.is_null() && !json.empty(); };
  if (!given(ranks) && !given(alphas)) return false;
  Json wanted = Json::object();
  wanted[kFusedLayer] = checked_mul(3, lora.rank);
  if (ranks == wanted && alphas.is_object() && alphas.size() == 1 && alphas.contains(kFusedLayer) &&
      alphas[kFusedLayer].is_number() &&
      std::abs(alphas[kFusedLayer].get<double>() - fused_alpha(lora)) < 1e-9 * fused_alpha(lora))
    return true;
  fail_input(file, ": rank_pattern ", ranks.dump(), " with alpha_pattern ", alphas.dump(),
             " is not available");
}

LoraConfig read_config(const std::string& file, bool& diagonal) {
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
  diagonal = read_patterns(file, get("rank_pattern"), get("alpha_pattern"), lora);
  // A text is a regular expression there, also one word, which has to be all of a name.
  if (targets == "all-linear")
    lora.targets = {"all-linear"};
  else if (targets.is_string())
    lora.pattern = targets.get<std::string>();
  if (targets.is_array())
    for (const Json& target : targets)
      if (target.is_string()) lora.targets.push_back(target.get<std::string>());
  if (lora.targets.empty() && lora.pattern.empty())
    fail_input(file,
               ": \"target_modules\" must be a list of names, a regular expression, or "
               "\"all-linear\"");
  return lora;
}

// How a list there names a layer: as ours does, by its last part where ours says so of all or of its parts, or wholly.
std::string target_of(const LoraConfig& lora, const std::string& layer) {
  bool dotted = !lora.pattern.empty();
  for (const std::string& target : lora.targets) {
    if (target != "all-linear" && LoraConfig{.targets = {target}}.matches(layer)) return target;
    dotted |= target.find('.') != std::string::npos;
  }
  return dotted ? layer : layer.substr(layer.rfind('.') + 1);
}

// The adapted layers' names there.
std::vector<std::string> adapted_layers(const ModelConfig& config, const LoraConfig& lora) {
  std::vector<std::string> names;
  for (const ModelParameter& p : adapter_parameters(config, lora))
    if (const std::string name = layer_of(config, p.name).name;
        names.empty() || names.back() != name)
      names.push_back(name);
  return names;
}

// An expression stays one where it says the same of the names there.
Json targets_json(const LoraConfig& lora, const std::vector<std::string>& layers) {
  if (!lora.pattern.empty() &&
      std::ranges::all_of(layers, [&](const std::string& name) { return lora.matches(name); }))
    return lora.pattern;
  std::vector<std::string> targets;
  for (const std::string& layer : layers)
    if (const std::string target = target_of(lora, layer);
        std::ranges::find(targets, target) == targets.end())
      targets.push_back(target);
  return targets;
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
  lora_ = read_config((fs::path(directory) / kConfigFile).string(), diagonal_);
  const fs::path weights = fs::path(directory) / kWeightsFile;
  if (!fs::is_regular_file(weights))
    fail_input(directory, " holds ", kConfigFile, " and no ", kWeightsFile);
  tensors_ = std::make_unique<SafetensorsDirectory>(weights.string());
}

ParameterPlace PeftAdapter::place(const ModelConfig& config, const std::string& parameter) const {
  const Layer layer = layer_of(config, parameter);
  const int64_t rows = !layer.is_a() ? config.hidden_size : diagonal_ ? lora_.rank : 0;
  return {HfSource{.tensor = kPrefix + layer.name + layer.suffix, .first_row = layer.part * rows}};
}

void PeftAdapter::read(const ModelConfig& config, const ModelParameter& parameter,
                       const TensorBox& box, int64_t begin, const Tensor& destination) const {
  const Layer layer = layer_of(config, parameter.name);
  if (!diagonal_ || !layer.is_b() || layer.parts == 1)
    return ModelSource::read(config, parameter, box, begin, destination);
  TensorBox block = box;
  block.start[0] += layer.part * parameter.shape[0];
  block.start[1] += layer.part * parameter.shape[1];
  ModelSource::read(config,
                    {layer.name + layer.suffix, shape_of(layer, parameter, diagonal_), false},
                    block, begin, destination);
}

bool PeftAdapter::is_diagonal(const ModelConfig& config, const SourceTensor& b) const {
  const int64_t n = Shape(std::span<const int64_t>(b.shape)).numel(), columns = b.shape[1];
  std::vector<float> values(static_cast<size_t>(n));
  ModelSource::read(config, {b.name.substr(std::strlen(kPrefix)), b.shape, false},
                    whole_box(b.shape), 0, Tensor(values.data(), DType::kF32, Shape{n}));
  for (int64_t i = 0; i < n; ++i)
    if (i / columns * 3 / b.shape[0] != i % columns * 3 / columns &&
        values[static_cast<size_t>(i)] != 0)
      return false;
  return true;
}

std::string PeftAdapter::problems(const ModelConfig& config, const LoraConfig& lora) const {
  std::string problems;
  std::set<std::string> known;
  if (adapter_parameters(config, lora).empty())
    fail_input(path(), ": \"target_modules\" ",
               lora.pattern.empty() ? lora.targets.front() : lora.pattern,
               " are no layers of the model that may have adapters");
  std::map<std::string, int64_t> adapted;  // parts of layers
  for (const ModelParameter& p : adapter_parameters(config, lora)) {
    const Layer layer = layer_of(config, p.name);
    const std::string name = kPrefix + layer.name + layer.suffix;
    if (layer.parts > 1) ++adapted[name];
    if (!known.insert(name).second) continue;
    const SourceTensor* tensor = tensors_->find(name);
    const std::vector<int64_t> wanted = shape_of(layer, p, diagonal_);
    if (tensor == nullptr)
      problems += concat("\n  missing: ", name);
    else if (tensor->shape != wanted)
      problems +=
          concat("\n  ", name, ": ", shape_text(tensor->shape), " instead of ", shape_text(wanted));
    else if (layer.parts > 1 && diagonal_ && layer.is_b() && !is_diagonal(config, *tensor))
      problems += concat("\n  ", name, " is not a diagonal of three; its rank is not available");
  }
  for (const auto& [name, parts] : adapted)
    if (parts < 3)
      problems += concat("\n  ", name, " is of query, key and value, of which ", parts,
                         parts == 1 ? " is" : " are", " a target");
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

namespace {

// A tensor of the files, from ours.
struct Written {
  SafetensorsSpec spec;
  Layer layer;                        // of the first part that is adapted
  std::vector<ModelParameter> parts;  // those that are
};

std::vector<Written> written_tensors(const LoraConfig& lora, const ModelConfig& config,
                                     const ModelSource& adapters) {
  std::vector<Written> out;
  std::map<std::string, size_t> numbers;
  for (const ModelParameter& p : adapter_parameters(config, lora)) {
    const Layer layer = layer_of(config, p.name);
    const std::string name = kPrefix + layer.name + layer.suffix;
    const auto [found, fresh] = numbers.try_emplace(name, out.size());
    if (fresh) {
      const SourceTensor* stored = adapters.tensors().find(adapters.place(config, p.name).tensor);
      if (stored == nullptr) fail_input(adapters.path(), ": has no tensor ", p.name);
      out.push_back(
          {{name, stored->dtype.value_or(DType::kF32), shape_of(layer, p, true)}, layer, {}});
    }
    out[found->second].parts.push_back(p);
  }
  for (const Written& w : out)
    if (lora.dora && std::ssize(w.parts) < w.layer.parts)
      fail_input("magnitudes of some of ", w.layer.name, " have no place in PEFT's format: ",
                 "query, key and value are one layer there; adapt all of them");
  return out;
}

// Blocks of rows below each other, those of B each in its columns.
void write_tensor(SafetensorsWriter& writer, const ModelConfig& config, const ModelSource& adapters,
                  const Written& w) {
  const Shape shape{std::span<const int64_t>(w.spec.shape)};
  const int64_t element = dtype_size(w.spec.dtype);
  const Buffer all("adapter", shape.numel() * element);
  auto* const bytes = static_cast<std::byte*>(all.tensor(w.spec.dtype, shape).raw());
  std::fill_n(bytes, shape.numel() * element, std::byte{0});
  for (const ModelParameter& p : w.parts) {
    const int64_t part = layer_of(config, p.name).part, rows = p.shape[0];
    const int64_t columns = p.shape.size() > 1 ? p.shape[1] : 1;
    const int64_t width = p.shape.size() > 1 ? w.spec.shape[1] : 1;
    const Buffer buffer("adapter's part", rows * columns * element);
    const Tensor values = buffer.tensor(w.spec.dtype, Shape{rows * columns});
    adapters.read(config, p, whole_box(p.shape), 0, values);
    const auto* const from = static_cast<const std::byte*>(values.raw());
    const int64_t first_column = width > columns ? part * columns : 0;
    for (int64_t r = 0; r < rows; ++r)
      std::copy_n(from + r * columns * element, columns * element,
                  bytes + ((part * rows + r) * width + first_column) * element);
  }
  writer.write(all.tensor(w.spec.dtype, shape));
}

Json config_json(const LoraConfig& lora, const ModelConfig& config, const std::string& base) {
  const std::vector<std::string> layers = adapted_layers(config, lora);
  Json ranks = Json::object(), alphas = Json::object();
  if (std::ranges::any_of(layers, [](const std::string& name) {
        return name.ends_with(concat(".", kFusedLayer));
      })) {
    ranks[kFusedLayer] = 3 * lora.rank;
    alphas[kFusedLayer] = fused_alpha(lora);
  }
  return {{"peft_type", "LORA"},
          {"task_type", "CAUSAL_LM"},
          {"base_model_name_or_path", base},
          {"r", lora.rank},
          {"lora_alpha", lora.alpha},
          {"lora_dropout", lora.dropout},
          {"target_modules", targets_json(lora, layers)},
          {"rank_pattern", ranks},
          {"alpha_pattern", alphas},
          {"use_rslora", lora.rank_stabilised},
          {"use_dora", lora.dora},
          {"bias", "none"},
          {"fan_in_fan_out", config.family == ModelFamily::kGpt2},
          {"inference_mode", true}};
}

}  // namespace

void write_peft_adapter(const LoraConfig& lora, const ModelConfig& config,
                        const ModelSource& adapters, const std::string& base,
                        const std::string& directory) {
  const std::vector<Written> tensors = written_tensors(lora, config, adapters);
  std::vector<SafetensorsSpec> specs;
  specs.reserve(tensors.size());
  for (const Written& w : tensors) specs.push_back(w.spec);
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) fail_input("cannot make ", directory, ": ", error.message());
  SafetensorsWriter writer((fs::path(directory) / kWeightsFile).string(), specs,
                           {{"format", "pt"}});
  for (const Written& w : tensors) write_tensor(writer, config, adapters, w);
  writer.commit();
  write_file_atomically((fs::path(directory) / kConfigFile).string(),
                        config_json(lora, config, base).dump(2) + "\n");
}

}  // namespace trireme
