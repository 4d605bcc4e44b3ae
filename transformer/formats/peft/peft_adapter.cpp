#include "transformer/formats/peft/peft_adapter.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <vector>

#include "engine/io/input_file.h"
#include "engine/io/safetensors_directory.h"
#include "transformer/formats/hf/hf_source.h"
#include "transformer/formats/peft/peft_layer.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

// Inner (rank) dimension of a factor; -1 for magnitudes, which have none.
int inner_dimension(const PeftLayer& layer) { return layer.is_a() ? 0 : layer.is_b() ? 1 : -1; }

// HuggingFace's names of the layers that the file's tensors belong to.
std::set<std::string> layers_in(const TensorSource& tensors) {
  std::set<std::string> names;
  for (const SourceTensor& tensor : tensors.tensors())
    if (const size_t end = tensor.name.rfind(".lora_");
        tensor.name.starts_with(kPeftPrefix) && end != std::string::npos)
      names.insert(tensor.name.substr(std::strlen(kPeftPrefix), end - std::strlen(kPeftPrefix)));
  return names;
}

}  // namespace

PeftAdapter::PeftAdapter(const std::string& directory)
    : ModelSource(directory), peft_((fs::path(directory) / kPeftConfigFile).string()) {
  const fs::path weights = fs::path(directory) / kPeftWeightsFile;
  if (!is_input_file(weights.string()))
    fail_input(directory, " holds ", kPeftConfigFile, " and no ", kPeftWeightsFile);
  tensors_ = std::make_unique<SafetensorsDirectory>(weights.string());
  diagonal_ = peft_.has_fused_patterns() && has_diagonals();
  mixed_ = peft_.has_patterns() && !diagonal_;
  lora_ = peft_.lora();
  if (!mixed_ && !peft_.selects()) return;
  lora_.targets.clear();
  int64_t most = 1;
  for (const std::string& layer : layers_in(*tensors_)) {
    if (!peft_.targets(layer)) continue;
    lora_.targets.push_back(layer);
    most = std::max(most, peft_.rank(layer));
  }
  if (!mixed_) return;
  lora_.rank = most;
  lora_.alpha = static_cast<double>(most);
  lora_.rank_stabilized = false;
}

ParameterMapping PeftAdapter::place(const ModelConfig& config, const std::string& parameter) const {
  if (parameter.find(".lora_") == std::string::npos) {
    HfSource source = hf_source(config, parameter);
    const SourceTensor* const own = replacement(source.tensor);
    source.tensor = own == nullptr ? kPeftPrefix + source.tensor : own->name;
    return {source};
  }
  const PeftLayer layer = peft_layer(config, parameter);
  const int64_t rows = !layer.is_a() ? config.hidden_size : diagonal_ ? lora_.rank : 0;
  return {HfSource{
      .tensor = layer.tensor(), .transposed = layer.embedding, .first_row = layer.part * rows}};
}

void PeftAdapter::read(const ModelConfig& config, const ModelParameter& parameter,
                       const TensorBox& box, int64_t begin, const Tensor& destination) const {
  if (parameter.name.find(".lora_") == std::string::npos)
    return ModelSource::read(config, parameter, box, begin, destination);
  const PeftLayer layer = peft_layer(config, parameter.name);
  if (mixed_ && inner_dimension(layer) >= 0)
    return read_padded(config, parameter, layer, box, begin, destination);
  if (!diagonal_ || !layer.is_b() || layer.parts == 1)
    return ModelSource::read(config, parameter, box, begin, destination);
  TensorBox block = box;
  block.start[0] += layer.part * parameter.shape[0];
  block.start[1] += layer.part * parameter.shape[1];
  ModelSource::read(config, {layer.name + layer.suffix, layer.shape(parameter, diagonal_), false},
                    block, begin, destination);
}

void PeftAdapter::read_padded(const ModelConfig& config, const ModelParameter& parameter,
                              const PeftLayer& layer, const TensorBox& box, int64_t begin,
                              const Tensor& destination) const {
  const auto inner = static_cast<size_t>(inner_dimension(layer));
  ModelParameter theirs = parameter;
  theirs.shape[inner] = peft_.rank(layer.name);
  TensorBox own = box;
  own.extent[inner] = std::min(box.extent[inner], theirs.shape[inner] - box.start[inner]);
  std::vector<float> all(static_cast<size_t>(checked_mul(box.extent[0], box.extent[1])));
  if (own.extent[inner] > 0) {
    std::vector<float> tile(static_cast<size_t>(own.extent[0] * own.extent[1]));
    ModelSource::read(config, theirs, own, 0,
                      Tensor(tile.data(), DType::kF32, Shape{std::ssize(tile)}));
    const auto factor = static_cast<float>(layer.is_b() ? peft_.scale(layer.name) : 1.0);
    place_scaled(tile, own.extent[1], factor, all, box.extent[1]);
  }
  convert_elements(destination,
                   std::span<const float>(all).subspan(static_cast<size_t>(begin),
                                                       static_cast<size_t>(destination.numel())));
}

void place_scaled(std::span<const float> tile, int64_t columns, float factor, std::span<float> all,
                  int64_t width) {
  for (int64_t r = 0; r * columns < std::ssize(tile); ++r)
    std::transform(tile.begin() + r * columns, tile.begin() + (r + 1) * columns,
                   all.begin() + r * width, [=](float v) { return factor * v; });
}

bool PeftAdapter::has_diagonals() const {
  const auto is_fused = [](const SourceTensor& t) {
    return t.name.ends_with(".c_attn.lora_B.weight") && t.shape.size() == 2;
  };
  return std::ranges::all_of(tensors_->tensors(),
                             [&](const SourceTensor& t) { return !is_fused(t) || is_diagonal(t); });
}

bool PeftAdapter::is_diagonal(const SourceTensor& b) const {
  const int64_t rows = b.shape[0], columns = b.shape[1];
  if (rows % 3 != 0 || columns % 3 != 0 || !b.dtype.has_value()) return false;
  std::vector<float> values(static_cast<size_t>(columns));
  for (int64_t row = 0; row < rows; ++row) {
    tensors_->read(b, row * columns, Tensor(values.data(), DType::kF32, Shape{columns}));
    for (int64_t c = 0; c < columns; ++c)
      if (row * 3 / rows != c * 3 / columns && values[static_cast<size_t>(c)] != 0) return false;
  }
  return true;
}

std::vector<ModelParameter> PeftAdapter::own_parameters(const ModelConfig& config) const {
  LoraConfig wanted = lora_;
  if (peft_.selects()) wanted.targets = {"all-linear"};
  std::vector<ModelParameter> out;
  for (ModelParameter& p : adapter_parameters(config, wanted)) {
    const PeftLayer layer = peft_layer(config, p.name);
    if (peft_.selects() && !peft_.targets(layer.name)) continue;
    if (mixed_ && inner_dimension(layer) >= 0)
      p.shape[static_cast<size_t>(inner_dimension(layer))] = peft_.rank(layer.name);
    out.push_back(std::move(p));
  }
  add_beyond(config, out);
  if (out.empty())
    fail_input(path(), ": \"target_modules\" ", peft_.targets_text(),
               " are not layers of the model that support adapters");
  return out;
}

std::string PeftAdapter::problems(const ModelConfig& config,
                                  const std::vector<ModelParameter>& wanted) const {
  std::string problems;
  std::set<std::string> known;
  std::map<std::string, int64_t> adapted;  // number of adapted parts by layer
  for (const ModelParameter& p : wanted) {
    const PeftLayer layer = peft_layer(config, p.name);
    const std::string name = layer.tensor();
    if (layer.parts > 1) ++adapted[name];
    if (!known.insert(name).second) continue;
    const SourceTensor* tensor = tensors_->find(name);
    const std::vector<int64_t> shape = layer.shape(p, diagonal_);
    if (tensor == nullptr)
      problems += concat("\n  missing: ", name);
    else if (tensor->shape != shape)
      problems +=
          concat("\n  ", name, ": ", shape_text(tensor->shape), " instead of ", shape_text(shape));
  }
  for (const auto& [name, parts] : adapted)
    if (parts < 3)
      problems += concat("\n  ", name, " holds query, key and value, of which only ", parts,
                         parts == 1 ? " is" : " are", " selected by target_modules");
  problems += replacement_problems(config, known);
  for (const SourceTensor& tensor : tensors_->tensors())
    if (!known.contains(tensor.name)) problems += concat("\n  left over: ", tensor.name);
  return problems.substr(0, 2000);
}

void PeftAdapter::check_adapters(const ModelConfig& config) const {
  if (const std::string found = problems(config, own_parameters(config)); !found.empty())
    fail_input(path(), ": its adapters do not match the model:", found);
}

void PeftAdapter::check_beginning(const ModelConfig& config, const LoraConfig& lora) const {
  std::string found;
  const auto compare = [&](const char* key, const auto& run, const char* word, const auto& file) {
    if (run != file) found += concat("\n  ", key, " is ", run, ", its ", word, " ", file);
  };
  const auto said = [](bool value) { return std::string(value ? "true" : "false"); };
  const LoraConfig& own = peft_.lora();
  compare("finetune.lora.rank", lora.rank, "r", own.rank);
  compare("finetune.lora.alpha", lora.alpha, "lora_alpha", own.alpha);
  compare("finetune.lora.use_rslora", said(lora.rank_stabilized), "use_rslora",
          said(own.rank_stabilized));
  compare("finetune.lora.use_dora", said(lora.dora), "use_dora", said(own.dora));
  if (needs_merging(config))
    found +=
        "\n  it changes more than linear layers (modules_to_save, bias, or adapters of the "
        "embedding, the head or a gate); merge it (trireme checkpoint merge-lora) and train new "
        "adapters for the merged model";
  else if (mixed_)
    found +=
        "\n  its layers have ranks or factors of their own (rank_pattern, alpha_pattern), and "
        "training has one of each; merge it (trireme checkpoint merge-lora) and train new "
        "adapters for the merged model";
  else
    found += problems(config, adapter_parameters(config, lora));
  if (!found.empty()) fail_input(path(), ": training cannot start from its adapters:", found);
}

}  // namespace trireme
