// Opening of any saved model: checkpoints of ours, HuggingFace directories, GGUF files, adapters.
#pragma once

#include <memory>
#include <string>

#include "transformer/formats/model_source.h"

namespace trireme {

// Opens the place that find_model() or find_base() returned; a checkpoint of adapters together with
// its base, merged into the base's weights.
std::unique_ptr<ModelSource> open_found_model(const std::string& place);
std::unique_ptr<ModelSource> open_any_model(const std::string& path);  // find_model() first
// For the configuration and the tokenizer only: of the newest checkpoint that a run has saved, else
// of a model that open_any_model() would open. Of ours only a manifest is read, and adapters are
// not merged.
std::unique_ptr<ModelSource> open_described_model(const std::string& saved,
                                                  const std::string& path);

// A model with adapters merged into its weights: a directory of PEFT, or a run or checkpoint of
// adapters.
std::unique_ptr<ModelSource> open_merged_model(const std::string& base,
                                               const std::string& adapters);

}  // namespace trireme
