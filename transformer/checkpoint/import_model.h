// Import of a third-party model as a Trireme checkpoint.
#pragma once

#include <optional>
#include <string>

#include "engine/io/sharded_checkpoint.h"
#include "transformer/formats/file_tensor.h"

namespace trireme {

struct ImportOptions {
  // Absent: each tensor keeps its own. Multi-token prediction layers always do (mtp_layers.h).
  std::optional<DType> dtype = {};
  CopyProgress progress = {};
};
// Writes a model as checkpoint `root`/step-00000000, streaming, with the tokenizer's files in
// root/tokenizer. The checkpoint is whole or absent; repeating an interrupted import resumes it
// (transformer/formats/unfinished_copy.h). InputError if `root` holds anything else.
SavedCheckpoint import_model(const ModelSource& source, const std::string& root,
                             const ImportOptions& options);

}  // namespace trireme
