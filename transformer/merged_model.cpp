#include "transformer/merged_model.h"

#include <algorithm>
#include <set>

namespace trireme {
namespace {

constexpr std::string_view kWeight = ".weight";

// The tensors of the base that its model needs, for what is asked about them.
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

// A whole matrix, converted to float32.
std::vector<float> matrix(const ModelSource& source, const ModelConfig& config,
                          const std::string& name, int64_t rows, int64_t columns) {
  std::vector<float> values(static_cast<size_t>(rows * columns));
  const ModelParameter parameter{name, {rows, columns}, false};
  source.read(config, parameter, whole_box(parameter.shape), 0,
              Tensor(values.data(), DType::kF32, Shape{rows * columns}));
  return values;
}

}  // namespace

MergedModel::MergedModel(std::unique_ptr<ModelSource> base, std::unique_ptr<ModelSource> adapters,
                         const LoraConfig& lora)
    : ModelSource(base->path()),
      base_(std::move(base)),
      adapters_(std::move(adapters)),
      lora_(lora) {
  config_ = base_->config();
  tensors_ = std::make_unique<NeededTensors>(*base_, *adapters_);
}

void MergedModel::read(const ModelConfig& config, const ModelParameter& parameter,
                       const TensorBox& box, int64_t begin, const Tensor& destination) const {
  const std::string& name = parameter.name;
  const std::string layer =
      name.ends_with(kWeight) ? name.substr(0, name.size() - kWeight.size()) : name;
  const std::string a_name = adapters_->place(config, layer + ".lora_A.weight").tensor;
  if (parameter.shape.size() != 2 || adapters_->tensors().find(a_name) == nullptr)
    return base_->read(config, parameter, box, begin, destination);
  const int64_t out = parameter.shape[0], in = parameter.shape[1], r = lora_.rank;
  const std::vector<float> a = matrix(*adapters_, config, layer + ".lora_A.weight", r, in);
  const std::vector<float> b = matrix(*adapters_, config, layer + ".lora_B.weight", out, r);
  const int64_t n = destination.numel(), width = box.extent[1];
  std::vector<float> sum(static_cast<size_t>(n));
  base_->read(config, parameter, box, begin, Tensor(sum.data(), DType::kF32, Shape{n}));
  const auto scale = static_cast<float>(lora_.scale());
  for (int64_t at = 0; at < n;) {  // the part of a row at a time
    const int64_t row = (begin + at) / width, column = (begin + at) % width;
    const int64_t count = std::min(n - at, width - column);
    float* const y = sum.data() + at;
    for (int64_t k = 0; k < r; ++k) {
      const float factor = scale * b[static_cast<size_t>((box.start[0] + row) * r + k)];
      const float* const x = a.data() + k * in + box.start[1] + column;
      for (int64_t i = 0; i < count; ++i) y[i] += factor * x[i];
    }
    at += count;
  }
  convert_elements(destination, std::span<const float>(sum));
}

}  // namespace trireme
