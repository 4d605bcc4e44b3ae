// HuggingFace directory: config.json and safetensors (engine/io/safetensors_directory.h).
//
// Accepts the names of a model without its head ("layers.0..." for "model.layers.0...", "h.0..."
// for "transformer.h.0...") and those of the language model inside a multimodal one
// ("language_model.model.layers.0..."). Skips tensors that the model does not use
// (hf_tensor_is_ignored() in hf_source.h) and the vision parts of a multimodal model. A tied model
// may have the token embedding, the head or both; if the values of both differ, the model is not
// tied (load_model_config() in load_config.h). The experts of a layer may be fused into two tensors
// (fused_experts.h).
#pragma once

#include "engine/config/reader.h"
#include "transformer/formats/model_source.h"

namespace trireme {

class HfModel : public ModelSource {
 public:
  // Reads the configuration and the tensor headers. InputError if either is invalid.
  explicit HfModel(const std::string& directory);
  const char* kind() const override { return "hf"; }
  std::string tokenizer() const override;
  std::string settings() const override { return settings_; }
  ParameterMapping place(const ModelConfig& config, const std::string& parameter) const override;

 protected:
  bool is_ignored(const ModelConfig& config, const std::string& tensor) const override;

 private:
  std::string settings_;  // text of config.json, which also describes the quantization
  std::string prefix_;    // of our parameter names
  std::string theirs_;    // its counterpart in the files
  std::string head_;      // name of the head's tensor; "": none
  bool fused_experts_ = false;
};

// Opens the tensors of a directory, dequantized if they are quantized. json: its config.json.
std::unique_ptr<TensorSource> open_hf_tensors(const std::string& directory, const Json& json);
// Returns whether the head's values differ from the token embedding's, compared bit by bit in
// float32. false if either is missing.
bool has_head_of_its_own(const ModelConfig& config, const TensorSource& tensors);

// Returns whether the path is a directory with config.json and either safetensors or no files of a
// run.
bool is_hf_model(const std::string& path);

}  // namespace trireme
