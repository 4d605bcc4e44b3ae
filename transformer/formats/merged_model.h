// Model with merged adapters as a ModelSource: V = W + s B A; with magnitudes, m V / ||V|| by row.
//
// It can be evaluated, converted and exported like the model alone. Parameters that the adapters'
// files hold in full replace those of the base. A tied base whose embedding or head the adapters
// change gets an untied head unless they change both alike (PeftAdapter::merged_config()). Holds in
// memory only the adapters of one layer and, for magnitudes, some rows of its weight.
#pragma once

#include <memory>

#include "transformer/formats/model_source.h"
#include "transformer/layers/lora.h"

namespace trireme {

class PeftAdapter;

class MergedModel : public ModelSource {
 public:
  // adapters: source of the tensors of `lora` for the base's model.
  MergedModel(std::unique_ptr<ModelSource> base, std::unique_ptr<ModelSource> adapters,
              const LoraConfig& lora);
  const char* kind() const override { return base_->kind(); }
  std::string tokenizer() const override { return base_->tokenizer(); }
  std::string settings() const override;
  ParameterMapping place(const ModelConfig& config, const std::string& parameter) const override;
  void read(const ModelConfig& config, const ModelParameter& parameter, const TensorBox& box,
            int64_t begin, const Tensor& destination) const override;

 protected:
  bool is_ignored(const ModelConfig&, const std::string&) const override { return false; }

 private:
  struct Factors;
  // A weight of the merged model, and its counterpart in the source that adapters are added to.
  struct Weights {
    const ModelSource& source;
    ModelConfig config;  // of the source
    ModelParameter parameter;
  };
  Weights weights_of(const ModelConfig& config, const ModelParameter& parameter) const;
  Factors factors(const ModelConfig& config, const ModelParameter& weight,
                  const std::string& layer) const;
  // Elements [begin, begin + out.size()) of the flattened box, computed from whole rows of the
  // base.
  void read_scaled(const ModelConfig& config, const ModelParameter& parameter,
                   const Factors& factors, const TensorBox& box, int64_t begin,
                   std::vector<float>& out) const;
  std::unique_ptr<ModelSource> base_, adapters_;
  const PeftAdapter* peft_;  // the adapters as PEFT files; nullptr: a checkpoint
  LoraConfig lora_;
};

}  // namespace trireme
