// A HuggingFace directory: config.json and safetensors (engine/io/safetensors_directory.h).
//
// Names of a model without its head ("layers.0..." for "model.layers.0...", "h.0..." for
// "transformer.h.0...") are understood, so are those of the text part of a model with others
// ("language_model.model.layers.0..."), and tensors that nobody needs are passed over
// (hf_tensor_is_ignored()). A tied model may have the token embedding, the head or both; a head
// with other values than the embedding's is not tied (load_model_config()). The experts of a layer
// may be in two tensors (fused_experts.h).
#pragma once

#include "engine/config/reader.h"
#include "transformer/formats/model_source.h"

namespace trireme {

class HfModel : public ModelSource {
 public:
  // Reads the configuration and the headers. InputError for what is wrong with either.
  explicit HfModel(const std::string& directory);
  const char* kind() const override { return "hf"; }
  std::string tokenizer() const override;
  std::string settings() const override { return settings_; }
  ParameterPlace place(const ModelConfig& config, const std::string& parameter) const override;

 protected:
  bool is_ignored(const ModelConfig& config, const std::string& tensor) const override;

 private:
  std::string settings_;  // the text of config.json, which says how weights are quantised too
  std::string prefix_;    // of our names
  std::string theirs_;    // what stands in its place in the files
  std::string head_;      // the head's tensor; "": none
  bool fused_experts_ = false;
};

// The tensors of a directory, quantised ones as the numbers they stand for; `json`: its
// config.json.
std::unique_ptr<TensorSource> open_hf_tensors(const std::string& directory, const Json& json);
// Whether there is a head whose values are not those of the token embedding, bit by bit in float32.
bool has_head_of_its_own(const ModelConfig& config, const TensorSource& tensors);

// A directory with config.json and safetensors in it, or with the former and nothing of a run.
bool is_hf_model(const std::string& path);

}  // namespace trireme
