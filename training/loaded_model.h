// A model read from a run directory or a checkpoint, for evaluation and generation.
#pragma once

#include <memory>
#include <string>

#include "training/run_config.h"
#include "transformer/model.h"

namespace trireme {

class LoadedModel {
 public:
  // Reads the configuration of a checkpoint that find_checkpoint() gave.
  explicit LoadedModel(const std::string& checkpoint);
  // Reads the parameters that a rank at this place of a layout holds, and readies the model for
  // sequences of `positions` tokens. InputError when the tensors do not fit the configuration.
  void load(const Layout& layout, int64_t positions);
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
