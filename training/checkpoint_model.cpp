#include "training/checkpoint_model.h"

#include <nlohmann/json.hpp>

#include "training/run_directory.h"
#include "training/train_checkpoint.h"

namespace trireme {
namespace {

constexpr int64_t kForeignSequenceLength = 2048;
constexpr const char* kForeign = "imported";

// Parameters and routers' biases of a checkpoint, under their names.
class CheckpointTensors : public TensorSource {
 public:
  explicit CheckpointTensors(const std::string& path) : TensorSource(path), reader_(path) {
    for (const CheckpointTensor& t : reader_.manifest().tensors) {
      if (t.kind != kKindParam && t.kind != kKindRouter) continue;
      add({t.name, text(t.dtype), t.dtype, t.shape, t.numel() * dtype_size(t.dtype)});
      tensors_of_reader_.push_back(&t);
    }
  }
  const CheckpointReader& reader() const { return reader_; }

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
  CheckpointReader reader_;
  std::vector<const CheckpointTensor*> tensors_of_reader_;
};

DType dtype_of_name(const std::string& name) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16})
    if (name == dtype_name(dtype)) return dtype;
  fail_input("unknown dtype \"", name, "\" in an imported checkpoint");
}

}  // namespace

CheckpointModel::CheckpointModel(const std::string& path) : ModelSource(path) {
  auto tensors = std::make_unique<CheckpointTensors>(path);
  run_config_ = checkpoint_run_config(tensors->reader());
  config_ = run_config_.model;
  tensors_ = std::move(tensors);
}

ParameterPlace CheckpointModel::place(const ModelConfig&, const std::string& parameter) const {
  return {HfSource{parameter}};
}

bool CheckpointModel::is_ignored(const ModelConfig&, const std::string& tensor) const {
  return tensor.ends_with("expert_shares");
}

std::unique_ptr<ModelSource> open_any_model(const std::string& path) {
  if (is_model_source(path)) return open_model_source(path);
  return std::make_unique<CheckpointModel>(find_checkpoint(checkpoint_place(path)).directory);
}

RunConfig foreign_run_config(const ModelConfig& model, DType dtype, const std::string& tokenizer) {
  RunConfig config;
  config.model = model;
  config.dtype = dtype;
  config.sequence_length = std::min(model.max_positions, kForeignSequenceLength);
  config.micro_batch_size = 1;
  config.data.tokenizer = tokenizer;
  config.data.eod_token_id = model.eos_token_id;
  return config;
}

Json foreign_state(const RunConfig& config) {
  return {{kForeign,
           {{"model", model_config_to_json(config.model)},
            {"dtype", dtype_name(config.dtype)},
            {"tokenizer", config.data.tokenizer}}}};
}

bool is_foreign_state(const Json& state) { return state.is_object() && state.contains(kForeign); }

RunConfig foreign_state_config(const Json& state) {
  const Json& imported = state.at(kForeign);
  ConfigReport report;
  const ModelConfig model = read_model_config(imported.at("model"), "model", report);
  report.throw_if_errors("imported checkpoint");
  return foreign_run_config(model, dtype_of_name(imported.at("dtype").get<std::string>()),
                            imported.at("tokenizer").get<std::string>());
}

}  // namespace trireme
