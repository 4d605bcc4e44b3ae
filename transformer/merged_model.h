// A model with adapters added to its weights, W + s B A, as a source: what is read from it may be evaluated,
// converted and exported like the model alone. Nothing is kept but the adapters of one layer.
#pragma once

#include <memory>

#include "transformer/lora.h"
#include "transformer/model_source.h"

namespace trireme {

class MergedModel : public ModelSource {
 public:
  // adapters: holds the tensors of `lora` for the base's model.
  MergedModel(std::unique_ptr<ModelSource> base, std::unique_ptr<ModelSource> adapters,
              const LoraConfig& lora);
  const char* kind() const override { return base_->kind(); }
  std::string tokenizer() const override { return base_->tokenizer(); }
  ParameterPlace place(const ModelConfig& config, const std::string& parameter) const override {
    return base_->place(config, parameter);
  }
  void read(const ModelConfig& config, const ModelParameter& parameter, const TensorBox& box,
            int64_t begin, const Tensor& destination) const override;

 protected:
  bool is_ignored(const ModelConfig&, const std::string&) const override { return false; }

 private:
  std::unique_ptr<ModelSource> base_, adapters_;
  LoraConfig lora_;
};

}  // namespace trireme
