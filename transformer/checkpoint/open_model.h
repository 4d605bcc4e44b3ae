// Model sources of any saved model: Trireme checkpoints, HuggingFace directories, GGUF files,
// adapters.
#pragma once

#include <memory>
#include <string>

#include "transformer/formats/model_source.h"

namespace trireme {

// Opens a path that find_model() or find_base() returned. A checkpoint of adapters is merged into
// the weights of its base.
std::unique_ptr<ModelSource> open_found_model(const std::string& place);
std::unique_ptr<ModelSource> open_any_model(const std::string& path);  // find_model() first
// Source of the configuration and the tokenizer only: the newest checkpoint that a run has saved,
// else the model that open_any_model() would open. Reads only the manifest of a Trireme checkpoint
// and does not merge adapters.
std::unique_ptr<ModelSource> open_described_model(const std::string& saved,
                                                  const std::string& path);

// Model with adapters merged into its weights. adapters: PEFT directory, or a run or checkpoint of
// adapters.
std::unique_ptr<ModelSource> open_merged_model(const std::string& base,
                                               const std::string& adapters);

}  // namespace trireme
