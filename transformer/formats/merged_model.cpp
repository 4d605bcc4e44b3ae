#include "transformer/formats/merged_model.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "engine/core/add_scaled.h"
#include "transformer/families/family.h"
#include "transformer/formats/peft/peft_adapter.h"

namespace trireme {
namespace {

constexpr std::string_view kWeight = ".weight";

// Tensors of the base that its model needs: metadata of the merged source.
class NeededTensors : public TensorSource {
 public:
  NeededTensors(const ModelSource& base, const ModelSource& adapters)
      : TensorSource(base.path()), all_(base.tensors()), adapters_(adapters.tensors()) {
    std::set<std::string> names;
    for (const ModelParameter& parameter : model_parameters(base.config()))
      names.insert(base.place(base.config(), parameter.name).tensor);
    for (const SourceTensor& tensor : all_.tensors())
      if (names.contains(tensor.name)) add(tensor);
  }
  std::vector<std::string> files() const override {
    std::vector<std::string> all = all_.files();
    for (const std::string& file : adapters_.files()) all.push_back(file);
    return all;
  }

 protected:
  void read_elements(size_t number, int64_t begin, const Tensor& destination) const override {
    all_.read(*all_.find(tensors()[number].name), begin, destination);
  }

 private:
  const TensorSource &all_, &adapters_;
};

// A whole tensor, converted to float32.
std::vector<float> values(const ModelSource& source, const ModelConfig& config,
                          const std::string& name, const std::vector<int64_t>& shape) {
  const Shape all{std::span<const int64_t>(shape)};
  std::vector<float> out(static_cast<size_t>(all.numel()));
  source.read(config, {name, shape, false}, whole_box(shape), 0,
              Tensor(out.data(), DType::kF32, Shape{all.numel()}));
  return out;
}

}  // namespace

MergedModel::MergedModel(std::unique_ptr<ModelSource> base, std::unique_ptr<ModelSource> adapters,
                         const LoraConfig& lora)
    : ModelSource(base->path()),
      base_(std::move(base)),
      adapters_(std::move(adapters)),
      peft_(dynamic_cast<const PeftAdapter*>(adapters_.get())),
      lora_(lora) {
  config_ = peft_ != nullptr ? peft_->merged_config(base_->config()) : base_->config();
  tensors_ = std::make_unique<NeededTensors>(*base_, *adapters_);
}

// s B A, and m where there are magnitudes.
struct MergedModel::Factors {
  std::vector<float> a, b, m;
  int64_t rank = 0, in = 0;
  float scale = 1;
  // y += columns [column, column + count) of row `row` of s B A
  void add(float* y, int64_t row, int64_t column, int64_t count) const {
    for (int64_t k = 0; k < rank; ++k) {
      const float factor = scale * b[static_cast<size_t>(row * rank + k)];
      const float* const x = a.data() + k * in + column;
      add_scaled(y, x, factor, count);
    }
  }
};

MergedModel::Factors MergedModel::factors(const ModelConfig& config, const ModelParameter& weight,
                                          const std::string& layer) const {
  const int64_t out = weight.shape[0], in = weight.shape[1], r = lora_.rank;
  Factors f{.a = values(*adapters_, config, layer + ".lora_A.weight", {r, in}),
            .b = values(*adapters_, config, layer + ".lora_B.weight", {out, r}),
            .m = {},
            .rank = r,
            .in = in,
            .scale = static_cast<float>(lora_.scale())};
  if (lora_.dora) f.m = values(*adapters_, config, layer + kMagnitudeSuffix, {out});
  return f;
}

void MergedModel::read_scaled(const ModelConfig& config, const ModelParameter& parameter,
                              const Factors& f, const TensorBox& box, int64_t begin,
                              std::vector<float>& out) const {
  constexpr int64_t kRows = 64;  // at a time
  const int64_t width = box.extent[1], n = std::ssize(out);
  const int64_t end = ceil_div(begin + n, width);  // row of the box
  std::vector<float> tile;
  const Weights base = weights_of(config, parameter);
  for (int64_t first = begin / width; first < end; first += kRows) {
    const int64_t rows = std::min(end - first, kRows);
    tile.resize(static_cast<size_t>(rows * f.in));
    base.source.read(base.config, base.parameter,
                     {.start = {box.start[0] + first, 0}, .extent = {rows, f.in}}, 0,
                     Tensor(tile.data(), DType::kF32, Shape{rows * f.in}));
    for (int64_t r = first; r < first + rows; ++r) {
      float* const v = tile.data() + (r - first) * f.in;
      f.add(v, box.start[0] + r, 0, f.in);
      double squares = 0;
      for (int64_t i = 0; i < f.in; ++i)
        squares += static_cast<double>(v[i]) * static_cast<double>(v[i]);
      const double m = f.m[static_cast<size_t>(box.start[0] + r)];
      const double g = squares > 0 ? m / std::sqrt(squares) : 1;
      const int64_t from = std::max(begin, r * width), to = std::min(begin + n, (r + 1) * width);
      for (int64_t at = from; at < to; ++at)
        out[static_cast<size_t>(at - begin)] =
            static_cast<float>(g * static_cast<double>(v[box.start[1] + at - r * width]));
    }
  }
}

MergedModel::Weights MergedModel::weights_of(const ModelConfig& config,
                                             const ModelParameter& parameter) const {
  const auto replaces = [&](const std::string& name) {
    return peft_ != nullptr && peft_->replaces(config, name);
  };
  if (replaces(parameter.name)) return {*adapters_, config, parameter};
  if (config.tie_word_embeddings || !base_->config().tie_word_embeddings)
    return {*base_, config, parameter};
  const std::string table = concat(parameter_names(config).token_embedding, kWeight);
  const std::string head = concat(parameter_names(config).head, kWeight);
  if (parameter.name != table && parameter.name != head) return {*base_, config, parameter};
  ModelParameter other = parameter;
  other.name = parameter.name == table ? head : table;
  if (peft_ != nullptr && peft_->replaces_both(config, other.name))
    return {*adapters_, config, other};
  other.name = table;
  ModelConfig tied = config;
  tied.tie_word_embeddings = true;
  return {*base_, std::move(tied), std::move(other)};
}

ParameterMapping MergedModel::place(const ModelConfig& config, const std::string& parameter) const {
  ModelConfig theirs = config;
  theirs.tie_word_embeddings = base_->config().tie_word_embeddings;
  const ParameterNames& names = parameter_names(config);
  if (theirs.tie_word_embeddings && parameter == concat(names.head, kWeight))
    return base_->place(theirs, concat(names.token_embedding, kWeight));
  return base_->place(theirs, parameter);
}

std::string MergedModel::settings() const {
  return concat(base_->settings(), " ", lora_.rank, " ", lora_.scale(), " ", lora_.dora);
}

void MergedModel::read(const ModelConfig& config, const ModelParameter& parameter,
                       const TensorBox& box, int64_t begin, const Tensor& destination) const {
  const std::string& name = parameter.name;
  const Weights base = weights_of(config, parameter);
  const std::string layer =
      name.ends_with(kWeight) ? name.substr(0, name.size() - kWeight.size()) : name;
  const std::string a_name = adapters_->place(config, layer + ".lora_A.weight").tensor;
  if (parameter.shape.size() != 2 || adapters_->tensors().find(a_name) == nullptr)
    return base.source.read(base.config, base.parameter, box, begin, destination);
  const Factors f = factors(config, parameter, layer);
  const int64_t n = destination.numel(), width = box.extent[1];
  std::vector<float> sum(static_cast<size_t>(n));
  if (lora_.dora) {
    read_scaled(config, parameter, f, box, begin, sum);
    return convert_elements(destination, std::span<const float>(sum));
  }
  base.source.read(base.config, base.parameter, box, begin,
                   Tensor(sum.data(), DType::kF32, Shape{n}));
  for (int64_t at = 0; at < n;) {  // the part of a row at a time
    const int64_t row = (begin + at) / width, column = (begin + at) % width;
    const int64_t count = std::min(n - at, width - column);
    f.add(sum.data() + at, box.start[0] + row, box.start[1] + column, count);
    at += count;
  }
  convert_elements(destination, std::span<const float>(sum));
}

}  // namespace trireme
