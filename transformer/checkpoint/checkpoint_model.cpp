#include "transformer/checkpoint/checkpoint_model.h"

#include "engine/text/tokenizer.h"

namespace trireme {
namespace {

// Parameters, selection biases and MTP layers of a checkpoint, under their own names.
class CheckpointTensors : public TensorSource {
 public:
  explicit CheckpointTensors(const std::string& path) : TensorSource(path), reader_(path) {
    for (const CheckpointTensor& t : reader_.manifest().tensors) {
      if (t.kind != kKindParam && t.kind != kKindRouter && t.kind != kKindMtp) continue;
      if (t.kind == kKindMtp) check_only_kind(t.name);
      add({t.name, text(t.dtype), t.dtype, t.shape, t.numel() * dtype_size(t.dtype)});
      tensors_of_reader_.push_back(&t);
    }
  }
  const CheckpointReader& reader() const { return reader_; }
  std::vector<std::string> files() const override {
    std::vector<std::string> out = {concat(reader_.directory(), "/", kManifestName)};
    for (const CheckpointShard& shard : reader_.manifest().shards)
      out.push_back(concat(reader_.directory(), "/", shard.file));
    return out;
  }

 protected:
  void read_elements(size_t number, int64_t begin, const Tensor& destination) const override {
    const CheckpointTensor& tensor = *tensors_of_reader_[number];
    const TensorBox whole = whole_box(tensor.shape);
    const Tensor flat = destination.reshape({destination.numel()});
    if (flat.dtype() == tensor.dtype) return reader_.read(tensor, whole, begin, flat);
    constexpr int64_t kPiece = 1 << 20;
    const Buffer buffer("checkpoint piece",
                        std::min(kPiece, flat.numel()) * dtype_size(tensor.dtype));
    for (int64_t done = 0; done < flat.numel(); done += kPiece) {
      const int64_t n = std::min(kPiece, flat.numel() - done);
      const Tensor piece = buffer.tensor(tensor.dtype, Shape{n});
      reader_.read(tensor, whole, begin + done, piece);
      convert_elements(
          flat.slice(0, done, done + n), tensor.dtype,
          {static_cast<const std::byte*>(piece.raw()), static_cast<size_t>(piece.bytes())});
    }
  }

 private:
  void check_only_kind(const std::string& name) const {
    for (const char* kind : {kKindParam, kKindRouter})
      if (reader_.find(kind, name) != nullptr)
        fail_input(reader_.directory(), ": \"", name, "\" is stored as ", kKindMtp, " and as ",
                   kind, "; import the model again");
  }
  CheckpointReader reader_;
  std::vector<const CheckpointTensor*> tensors_of_reader_;
};

}  // namespace

CheckpointModel::CheckpointModel(const std::string& path) : ModelSource(path) {
  auto tensors = std::make_unique<CheckpointTensors>(path);
  bundle_ = read_model_bundle(tensors->reader());
  config_ = bundle_.model;
  tensors_ = std::move(tensors);
}

void CheckpointModel::read(const ModelConfig& config, const ModelParameter& parameter,
                           const TensorBox& box, int64_t begin, const Tensor& destination) const {
  const auto& tensors = static_cast<const CheckpointTensors&>(*tensors_);
  const CheckpointTensor* tensor =
      tensors.reader().find(parameter.selection_bias ? kKindRouter : kKindParam, parameter.name);
  if (tensor == nullptr || tensor->dtype != destination.dtype())
    return ModelSource::read(config, parameter, box, begin, destination);
  tensors.reader().read(*tensor, box, begin, destination);
}

std::string CheckpointModel::tokenizer() const { return tokenizer_file(bundle_.tokenizer); }

ParameterMapping CheckpointModel::place(const ModelConfig&, const std::string& parameter) const {
  return {HfSource{parameter}};
}

bool CheckpointModel::is_ignored(const ModelConfig& config, const std::string& tensor) const {
  return tensor.ends_with("expert_shares") || mtp_layer_of(config, tensor) >= 0;
}

}  // namespace trireme
