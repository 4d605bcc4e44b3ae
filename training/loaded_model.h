// A model read from a run directory or a checkpoint, for evaluation and generation.
#pragma once

#include <memory>
#include <string>

#include "training/run_config.h"
#include "transformer/model.h"

namespace trireme {

class LoadedModel {
 public:
  // InputError when `path` holds no whole checkpoint or its tensors do not fit its configuration.
  explicit LoadedModel(const std::string& path);
  const std::string& checkpoint() const { return checkpoint_; }
  const RunConfig& run_config() const { return config_; }
  const Model& model() const { return *model_; }
  ParameterStore& parameters() { return *store_; }
  int64_t step() const { return step_; }

 private:
  std::string checkpoint_;
  RunConfig config_;
  int64_t step_ = 0;
  std::unique_ptr<Model> model_;
  std::unique_ptr<ParameterStore> store_;
};

}  // namespace trireme
