#include "transformer/formats/mtp_layers.h"

#include <set>

#include "engine/core/error.h"
#include "transformer/formats/note_once.h"

namespace trireme {
namespace {

// Copies hold a row in memory. More than the elements of a row of any model.
constexpr int64_t kMaxCopiedRow = int64_t{1} << 24;

bool can_be_copied(const SourceTensor& tensor) {
  const size_t rank = tensor.shape.size();
  return tensor.dtype.has_value() && is_float(*tensor.dtype) && rank >= 1 && rank <= 2 &&
         tensor.numel() > 0 && tensor.shape.back() <= kMaxCopiedRow;
}

// Reason that the tensors are not copied; "": none. layers: those that have tensors, from 0.
std::string problem_of(const ModelConfig& config, const std::set<int64_t>& layers,
                       const SourceTensor* unsupported) {
  if (unsupported != nullptr)
    return concat(
        "\"", unsupported->name, "\" is ", unsupported->dtype_name, " ",
        shape_text(unsupported->shape),
        concat(", not a vector or matrix of floats with at most ", kMaxCopiedRow, " in a row"));
  int64_t missing = 0;
  while (layers.contains(missing)) ++missing;
  if (missing == config.extra_layers) return "";
  return concat("these weights have no layer ", config.num_layers + missing);
}

}  // namespace

std::vector<ModelParameter> mtp_parameters(const ModelSource& source) {
  const ModelConfig& config = source.config();
  std::vector<ModelParameter> out;
  std::set<int64_t> layers;
  const SourceTensor* unsupported = nullptr;
  for (const SourceTensor& tensor : source.tensors().tensors()) {
    const int64_t layer = mtp_layer_of(config, tensor.name);
    if (layer < 0) continue;
    layers.insert(layer);
    if (unsupported == nullptr && !can_be_copied(tensor)) unsupported = &tensor;
    out.push_back({.name = tensor.name, .shape = tensor.shape, .mtp = true});
  }
  const std::string problem = problem_of(config, layers, unsupported);
  if (problem.empty()) return out;
  note_once(source.path(), concat(source.path(), ": the layers for multi-token prediction (",
                                  config.extra_layers, ") are left out: ", problem));
  return {};
}

}  // namespace trireme
