// Trireme checkpoint as a ModelSource: loaded, converted, exported and compared like third-party
// files.
#pragma once

#include <string>

#include "transformer/checkpoint/model_bundle.h"
#include "transformer/formats/model_source.h"

namespace trireme {

class CheckpointModel : public ModelSource {
 public:
  // Path of a step directory, or of the directory that holds `latest`.
  explicit CheckpointModel(const std::string& path);
  const ModelBundle& bundle() const { return bundle_; }
  const char* kind() const override { return "trireme"; }
  std::string tokenizer() const override;
  // As in ModelSource. If the destination has the stored tensor's dtype, each run of elements that
  // is contiguous in the box and in a shard is read with one access.
  void read(const ModelConfig& config, const ModelParameter& parameter, const TensorBox& box,
            int64_t begin, const Tensor& destination) const override;
  ParameterMapping place(const ModelConfig& config, const std::string& parameter) const override;

 protected:
  bool is_ignored(const ModelConfig& config, const std::string& tensor) const override;

 private:
  ModelBundle bundle_;
};

}  // namespace trireme
