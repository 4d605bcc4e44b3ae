// What an adapter of PEFT's changes beyond linear layers inside of transformer blocks.
#include <algorithm>
#include <map>
#include <utility>

#include "transformer/families/family.h"
#include "transformer/formats/hf/hf_source.h"
#include "transformer/formats/peft/peft_adapter.h"
#include "transformer/formats/peft/peft_layer.h"

namespace trireme {
namespace {

constexpr std::string_view kWeightSuffix = ".weight";

// Rows and columns of a tensor as read() counts them.
std::pair<int64_t, int64_t> rows_and_columns(const std::vector<int64_t>& shape) {
  const int64_t columns = shape.size() < 2 ? 1 : shape.back();
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) rows = checked_mul(rows, shape[i]);
  return {shape.size() < 2 ? (shape.empty() ? 1 : shape[0]) : rows, columns};
}

}  // namespace

// Adapters of matrices that are no linear layer of a block, where the file has some: the head, the
// embedding, gates of shared experts, and experts by name.
void PeftAdapter::add_beyond(const ModelConfig& config, std::vector<ModelParameter>& wanted) const {
  std::set<std::string> names;
  for (const ModelParameter& p : wanted) names.insert(p.name);
  for (const ModelParameter& p : model_parameters(config)) {
    const HfSource source = hf_source(config, p.name);
    if (p.shape.size() != 2 || p.router || !p.name.ends_with(kWeightSuffix) ||
        source.tensor != p.name || source.transposed)
      continue;
    const std::string ours = p.name.substr(0, p.name.size() - kWeightSuffix.size());
    const PeftLayer layer = peft_layer(config, ours + ".lora_A.weight");
    if (names.contains(ours + layer.suffix) || tensors_->find(layer.tensor()) == nullptr ||
        !peft_.targets(layer.name))
      continue;
    if (layer.embedding && lora_.dora)
      fail_input(path(), ": magnitudes (use_dora) of the embedding ", layer.name,
                 " are not available; merge it with PEFT (merge_and_unload(), save_pretrained()) ",
                 "and use the merged model");
    const int64_t rank = mixed_ ? peft_.rank(layer.name) : lora_.rank;
    wanted.push_back({ours + ".lora_A.weight", {rank, p.shape[1]}, false});
    wanted.push_back({ours + ".lora_B.weight", {p.shape[0], rank}, false});
    if (lora_.dora) wanted.push_back({ours + kMagnitudeSuffix, {p.shape[0]}, false});
  }
}

// The file's tensor in the place of one of the base; that of a layer with adapters is the layer's
// inside of PEFT's.
const SourceTensor* PeftAdapter::replacement(const std::string& tensor) const {
  const size_t dot = tensor.rfind('.');
  const std::string inner = dot == std::string::npos
                                ? tensor
                                : concat(tensor.substr(0, dot), ".base_layer", tensor.substr(dot));
  for (const std::string& name : {tensor, inner})
    if (const SourceTensor* const found = tensors_->find(kPeftPrefix + name)) return found;
  return nullptr;
}

bool PeftAdapter::replaces(const ModelConfig& config, const std::string& parameter) const {
  if (parameter.find(".lora_") != std::string::npos) return false;
  const std::string tensor = hf_source(config, parameter).tensor;
  return peft_.may_replace(tensor) && replacement(tensor) != nullptr;
}

bool PeftAdapter::needs_merging(const ModelConfig& config) const {
  for (const ModelParameter& p : model_parameters(config))
    if (replaces(config, p.name)) return true;
  LoraConfig all = lora_;
  all.targets = {"all-linear"};
  all.pattern.clear();
  std::vector<ModelParameter> inside = adapter_parameters(config, all);
  const size_t count = inside.size();
  add_beyond(config, inside);
  return inside.size() > count;
}

// "" or a line for each that is missing or of another shape; `known` gains those that there are.
std::string PeftAdapter::replacement_problems(const ModelConfig& config,
                                              std::set<std::string>& known) const {
  struct Wanted {
    int64_t rows = 0, columns = 1;
    bool transposed = false;
  };
  std::map<const SourceTensor*, Wanted> wanted;
  std::string problems = tied_problems(config, known);
  for (const ModelParameter& p : model_parameters(config)) {
    const HfSource source = hf_source(config, p.name);
    if (!peft_.may_replace(source.tensor)) continue;
    const SourceTensor* const own = replacement(source.tensor);
    if (own == nullptr) {
      if (peft_.must_replace(source.tensor) && known.insert(source.tensor).second)
        problems += concat("\n  missing: ", kPeftPrefix, source.tensor);
      continue;
    }
    known.insert(own->name);
    const auto [rows, columns] = rows_and_columns(p.shape);
    Wanted& all = wanted[own];
    all = {std::max(all.rows, source.first_row + rows), columns,
           source.transposed && p.shape.size() == 2};
  }
  for (const auto& [tensor, all] : wanted) {
    auto [rows, columns] = rows_and_columns(tensor->shape);
    if (all.transposed) std::swap(rows, columns);
    if (rows != all.rows || columns != all.columns)
      problems += concat("\n  ", tensor->name, ": ", shape_text(tensor->shape), ", the model has ",
                         all.rows, " rows of ", all.columns);
    else if (!tensor->dtype.has_value() || !is_float(*tensor->dtype))
      problems += concat("\n  ", tensor->name, " is ", tensor->dtype_name);
  }
  return problems;
}

// A tied table is two modules to PEFT, of which it changes one.
std::string PeftAdapter::tied_problems(const ModelConfig& config,
                                       std::set<std::string>& known) const {
  if (!config.tie_word_embeddings) return "";
  const ParameterNames& names = parameter_names(config);
  std::string problems;
  for (const char* module : {names.token_embedding, names.head})
    for (const SourceTensor& tensor : tensors_->tensors()) {
      if (!tensor.name.starts_with(concat(kPeftPrefix, module, "."))) continue;
      known.insert(tensor.name);
      problems += concat("\n  ", tensor.name,
                         ": the model's head is its embedding, of which PEFT changes one; merge ",
                         "it there (merge_and_unload(), save_pretrained())");
    }
  return problems;
}

}  // namespace trireme
