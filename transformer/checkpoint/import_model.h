// Import of a third-party model as a Trireme checkpoint.
#pragma once

#include <optional>
#include <string>

#include "engine/io/sharded_checkpoint.h"
#include "transformer/formats/file_tensor.h"

namespace trireme {

struct ImportOptions {
  // Dtype of the parameters in the checkpoint; absent: each tensor keeps its own. Multi-token
  // prediction layers always keep theirs (transformer/formats/mtp_layers.h). Selection biases of
  // routers are float32, in a float64 model float64.
  std::optional<DType> dtype = {};
  CopyProgress progress = {};
};
// Writes a model as checkpoint `root`/step-00000000, streaming, with the tokenizer's files in
// root/tokenizer. The checkpoint is whole or absent; repeating an interrupted import resumes it
// (transformer/formats/unfinished_copy.h). InputError if `root` holds anything else, or if the
// source lacks a tensor of its configuration or has an unknown one (ModelSource::check()).
SavedCheckpoint import_model(const ModelSource& source, const std::string& root,
                             const ImportOptions& options);

}  // namespace trireme
