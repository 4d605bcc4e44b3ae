// Opening of any saved model as a ModelSource: Trireme checkpoints, HuggingFace directories, GGUF
// files, adapters.
#pragma once

#include <memory>
#include <string>

#include "transformer/formats/model_source.h"

namespace trireme {

// Opens a path that find_model() or find_base() returned. A checkpoint of adapters is merged into
// the weights of its base.
std::unique_ptr<ModelSource> open_found_model(const std::string& place);
std::unique_ptr<ModelSource> open_any_model(const std::string& path);  // find_model() first
// Opens a source for its configuration and tokenizer only: the newest checkpoint at `saved`, else
// the one at `path`, else open_any_model(path). Reads only the manifest of a checkpoint and does
// not merge adapters.
std::unique_ptr<ModelSource> open_described_model(const std::string& saved,
                                                  const std::string& path);

// Opens a model with adapters merged into its weights. adapters: PEFT directory, or a run or
// checkpoint of adapters. InputError if it holds none, or if they are for another model.
std::unique_ptr<ModelSource> open_merged_model(const std::string& base,
                                               const std::string& adapters);

}  // namespace trireme
