#include "transformer/checkpoint/model_diff.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>

#include "engine/io/safetensors_directory.h"
#include "transformer/checkpoint/open_model.h"
#include "transformer/formats/mtp_layers.h"

namespace trireme {
namespace {

constexpr int64_t kPiece = 1 << 20;

// A tensor of one side, in any format.
struct Item {
  std::vector<int64_t> shape;
  std::string dtype;
  std::function<void(int64_t begin, const Tensor& destination)> read;
};

struct Side {
  std::unique_ptr<ModelSource> model;  // absent: a file without a configuration
  std::unique_ptr<TensorSource> file;
  const TensorSource& tensors() const { return model ? model->tensors() : *file; }
};

Side open_side(const std::string& path) {
  Side side;
  std::error_code ignored;
  const bool config = std::filesystem::exists(std::filesystem::path(path) / "config.json", ignored);
  if (holds_safetensors(path) && !config)
    side.file = std::make_unique<SafetensorsDirectory>(path);
  else
    side.model = open_any_model(path);
  return side;
}

std::string dtype_of(const SourceTensor& tensor) {
  return tensor.dtype.has_value() && !tensor.quantized ? text(*tensor.dtype) : tensor.dtype_name;
}

std::map<std::string, Item> items_by_tensor(const Side& side) {
  std::map<std::string, Item> items;
  const TensorSource& source = side.tensors();
  for (const SourceTensor& t : source.tensors())
    items[t.name] = {t.shape, dtype_of(t), [&source, &t](int64_t begin, const Tensor& destination) {
                       source.read(t, begin, destination);
                     }};
  return items;
}

std::map<std::string, Item> items_by_parameter(const Side& side) {
  std::map<std::string, Item> items;
  const ModelSource& model = *side.model;
  model.check(model.config());
  std::vector<ModelParameter> parameters = model_parameters(model.config());
  std::ranges::move(mtp_parameters(model), std::back_inserter(parameters));
  for (const ModelParameter& p : parameters) {
    const SourceTensor* tensor = model.tensors().find(model.place(model.config(), p.name).tensor);
    items[p.name] = {p.shape, dtype_of(*tensor), [&model, p](int64_t begin, const Tensor& out) {
                       model.read(model.config(), p, whole_box(p.shape), begin, out);
                     }};
  }
  return items;
}

int64_t numel_of(const Item& item) {
  int64_t n = 1;
  for (const int64_t dim : item.shape) n = checked_mul(n, dim);
  return n;
}

// Maximum in which NaN is larger than any number.
void raise(double& largest, double value) {
  if (!(value <= largest) && !std::isnan(largest)) largest = value;
}

void compare_values(const double* a, const double* b, int64_t n, double tolerance,
                    TensorDifference& out) {
  for (int64_t i = 0; i < n; ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    const double absolute = std::abs(a[i] - b[i]);
    // Not NaN if one of the values is infinite.
    const double relative =
        std::isinf(absolute) ? absolute : absolute / std::max(std::abs(a[i]), std::abs(b[i]));
    raise(out.largest_absolute, absolute);
    raise(out.largest_relative, relative);
    if (!(relative <= tolerance)) ++out.differing;
  }
}

// Adds the differences of two tensors to `out`. Returns whether there are any.
bool compare(const Item& a, const Item& b, const DiffOptions& options, TensorDifference& out,
             const std::function<void(int64_t)>& done) {
  out.elements = numel_of(a);
  if (a.shape != b.shape) {
    out.what = concat(shape_text(a.shape), " | ", shape_text(b.shape));
    return true;
  }
  const bool dtypes = options.tolerance == 0 && a.dtype != b.dtype;
  if (dtypes) out.what = concat(a.dtype, " | ", b.dtype);
  const int64_t most = std::min(kPiece, std::max<int64_t>(1, out.elements));
  const Buffer blocks("values to compare", 2 * most * dtype_size(DType::kF64));
  for (int64_t begin = 0; begin < out.elements; begin += most) {
    const int64_t n = std::min(most, out.elements - begin);
    const Tensor left = blocks.tensor(DType::kF64, Shape{n});
    const Tensor right = blocks.tensor(DType::kF64, Shape{n}, most * dtype_size(DType::kF64));
    a.read(begin, left);
    b.read(begin, right);
    compare_values(left.as<double>(), right.as<double>(), n, options.tolerance, out);
    done(n);
  }
  return dtypes || out.differing > 0;
}

}  // namespace

ModelDiff diff_models(const std::string& a, const std::string& b, const DiffOptions& options) {
  const Side left = open_side(a), right = open_side(b);
  const bool by_parameter = left.model && right.model;
  const auto of_left = by_parameter ? items_by_parameter(left) : items_by_tensor(left);
  const auto of_right = by_parameter ? items_by_parameter(right) : items_by_tensor(right);
  ModelDiff diff;
  int64_t total = 0, done = 0;
  for (const auto& [name, item] : of_left)
    if (of_right.contains(name)) total += numel_of(item);
  std::set<std::string> names;
  for (const auto* side : {&of_left, &of_right})
    for (const auto& [name, item] : *side) names.insert(name);
  for (const std::string& name : names) {
    const auto in_left = of_left.find(name), in_right = of_right.find(name);
    TensorDifference difference;
    difference.name = name;
    if (in_left == of_left.end() || in_right == of_right.end()) {
      difference.what = concat("only in ", in_left == of_left.end() ? b : a);
      diff.differences.push_back(std::move(difference));
      continue;
    }
    ++diff.tensors;
    const auto count = [&](int64_t n) {
      done += n;
      if (options.progress) options.progress(done, total);
    };
    if (compare(in_left->second, in_right->second, options, difference, count))
      diff.differences.push_back(std::move(difference));
  }
  return diff;
}

}  // namespace trireme
