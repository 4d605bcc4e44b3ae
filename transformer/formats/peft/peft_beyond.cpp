// Changes of a PEFT adapter beyond linear layers inside transformer blocks.
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

// Rows and columns of a tensor, as read() flattens it.
std::pair<int64_t, int64_t> rows_and_columns(const std::vector<int64_t>& shape) {
  const int64_t columns = shape.size() < 2 ? 1 : shape.back();
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) rows = checked_mul(rows, shape[i]);
  return {shape.size() < 2 ? (shape.empty() ? 1 : shape[0]) : rows, columns};
}

// Returns whether b (n, m) is the transpose of a (m, n). Both are factors of adapters.
bool are_transposes(const TensorSource& source, const SourceTensor& a, const SourceTensor& b) {
  if (a.shape.size() != 2 || b.shape.size() != 2 || a.shape[0] != b.shape[1] ||
      a.shape[1] != b.shape[0])
    return false;
  const int64_t rows = a.shape[0], columns = a.shape[1];
  std::vector<float> left(static_cast<size_t>(a.numel())), right(left.size());
  source.read(a, 0, Tensor(left.data(), DType::kF32, Shape{a.numel()}));
  source.read(b, 0, Tensor(right.data(), DType::kF32, Shape{a.numel()}));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      if (left[static_cast<size_t>(r * columns + c)] != right[static_cast<size_t>(c * rows + r)])
        return false;
  return true;
}

}  // namespace

// Adds adapters in the file of matrices that are not linear layers of a block: the head, the
// embedding, gates of shared experts, and experts by name.
void PeftAdapter::add_beyond(const ModelConfig& base, std::vector<ModelParameter>& wanted) const {
  const ModelConfig config = merged_config(base);
  const ParameterNames& parts = parameter_names(config);
  std::set<std::string> names;
  for (const ModelParameter& p : wanted) names.insert(p.name);
  for (const ModelParameter& p : model_parameters(config)) {
    const HfSource source = hf_source(config, p.name);
    if (p.shape.size() != 2 || p.selection_bias || !p.name.ends_with(kWeightSuffix) ||
        source.tensor != p.name || source.transposed)
      continue;
    const std::string ours = p.name.substr(0, p.name.size() - kWeightSuffix.size());
    const PeftLayer layer = peft_layer(config, ours + ".lora_A.weight");
    if (names.contains(ours + layer.suffix) || tensors_->find(layer.tensor()) == nullptr ||
        !(peft_.targets(layer.name) ||
          (peft_.ties() && (ours == parts.token_embedding || ours == parts.head))))
      continue;
    if (layer.embedding && lora_.dora) refuse_dora_of_table(base);
    const int64_t rank = mixed_ ? peft_.rank(layer.name) : lora_.rank;
    wanted.push_back({ours + ".lora_A.weight", {rank, p.shape[1]}, false});
    wanted.push_back({ours + ".lora_B.weight", {p.shape[0], rank}, false});
    if (lora_.dora) wanted.push_back({ours + kMagnitudeSuffix, {p.shape[0]}, false});
  }
}

// Tensor of the file that replaces one of the base. For a layer with adapters it is called
// base_layer inside PEFT's layer.
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

bool PeftAdapter::needs_merging(const ModelConfig& base) const {
  const ModelConfig config = merged_config(base);
  for (const ModelParameter& p : model_parameters(config))
    if (replaces(config, p.name)) return true;
  LoraConfig all = lora_;
  all.targets = {"all-linear"};
  all.pattern.clear();
  std::vector<ModelParameter> inside = adapter_parameters(config, all);
  const size_t count = inside.size();
  add_beyond(base, inside);
  return inside.size() > count;
}

// "" or a line for each tensor that is missing or has another shape. Adds those that exist to
// `known`.
std::string PeftAdapter::replacement_problems(const ModelConfig& base,
                                              std::set<std::string>& known) const {
  struct Wanted {
    int64_t rows = 0, columns = 1;
    bool transposed = false;
  };
  const ModelConfig config = merged_config(base);
  std::map<const SourceTensor*, Wanted> wanted;
  std::set<std::string> stacks;  // of all experts of a layer
  std::string problems;
  if (config.tie_word_embeddings)  // the head's tensors are a second copy of the embedding's
    for (const SourceTensor& tensor : tensors_->tensors())
      if (tensor.name.starts_with(concat(kPeftPrefix, parameter_names(config).head, ".")))
        known.insert(tensor.name);
  for (const ModelParameter& p : model_parameters(config)) {
    const HfSource source = hf_source(config, p.name);
    if (!peft_.may_replace(source.tensor)) continue;
    const SourceTensor* const own = replacement(source.tensor);
    if (source.matrices > 0) {
      if (own != nullptr) known.insert(own->name);
      if (own != nullptr || peft_.must_replace(source.tensor)) stacks.insert(source.tensor);
      continue;
    }
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
  for (const std::string& tensor : stacks)
    problems += concat("\n  ", tensor, " holds the experts of a layer, which no adapter replaces");
  for (const auto& [tensor, all] : wanted) {
    auto [rows, columns] = rows_and_columns(tensor->shape);
    if (all.transposed) std::swap(rows, columns);
    if (rows != all.rows || columns != all.columns)
      problems += concat("\n  ", tensor->name, ": ", shape_text(tensor->shape), ", the model has ",
                         all.rows, " rows of ", all.columns);
    else if (!tensor->dtype.has_value() || !is_float(*tensor->dtype))
      problems += concat("\n  ", tensor->name, " has the unsupported type ", tensor->dtype_name);
  }
  return problems;
}

bool PeftAdapter::changes(const std::string& module) const {
  return std::ranges::any_of(tensors_->tensors(), [&](const SourceTensor& tensor) {
    return tensor.name.starts_with(concat(kPeftPrefix, module, "."));
  });
}

// Returns whether the file changes both in the same way: equal weights, and factors that are each
// other's transposes, because PEFT's embedding multiplies with the transposed table.
bool PeftAdapter::changes_alike(const std::string& table, const std::string& head) const {
  const auto find = [&](const std::string& module, const char* end) {
    return tensors_->find(concat(kPeftPrefix, module, end));
  };
  for (const char* end : {".weight", ".base_layer.weight"}) {
    const SourceTensor *const a = find(table, end), *const b = find(head, end);
    if ((a == nullptr) != (b == nullptr)) return false;
    if (a != nullptr && !same_values(*tensors_, *a, *b)) return false;
  }
  for (const auto& [ours, theirs] : {std::pair{".lora_embedding_A", ".lora_B.weight"},
                                     {".lora_embedding_B", ".lora_A.weight"}}) {
    const SourceTensor *const a = find(table, ours), *const b = find(head, theirs);
    if ((a == nullptr) != (b == nullptr)) return false;
    if (a != nullptr && !are_transposes(*tensors_, *a, *b)) return false;
    // Patterns may give the two modules different scales.
    if (a != nullptr && peft_.scale(table) != peft_.scale(head)) return false;
  }
  return true;
}

ModelConfig PeftAdapter::merged_config(const ModelConfig& base) const {
  ModelConfig merged = base;
  const ParameterNames& names = parameter_names(base);
  if (base.tie_word_embeddings && (changes(names.token_embedding) || changes(names.head)))
    merged.tie_word_embeddings = peft_.ties() && changes_alike(names.token_embedding, names.head);
  return merged;
}

bool PeftAdapter::replaces_both(const ModelConfig& config, const std::string& parameter) const {
  return replaces(config, parameter) && !peft_.must_replace(hf_source(config, parameter).tensor);
}

// PEFT merges such an adapter correctly for an untied table; a tied table it merges into the head
// too.
void PeftAdapter::refuse_dora_of_table(const ModelConfig& base) const {
  const std::string what = concat(path(), ": magnitudes (use_dora) of the embedding ",
                                  parameter_names(base).token_embedding, " are not supported; ");
  if (!base.tie_word_embeddings)
    fail_input(what, "merge it with PEFT (merge_and_unload(), save_pretrained()) and use the ",
               "merged model");
  if (peft_.ties())
    fail_input(what, "nor does PEFT merge them where the head is the embedding and ",
               "ensure_weight_tying is set: train the adapter without use_dora");
  fail_input(what, "the head is the embedding here, and merging with PEFT would change both: give ",
             "the base a head of its own first (model.lm_head.weight = ",
             "torch.nn.Parameter(model.lm_head.weight.detach().clone()); ",
             "model.config.tie_word_embeddings = False), then load the adapter into it, ",
             "merge_and_unload() and save_pretrained(), and use the merged model");
}

}  // namespace trireme
