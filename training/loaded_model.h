// A model read from a run directory or a checkpoint, for evaluation and generation.
#pragma once

#include <memory>
#include <string>

#include "training/run_config.h"
#include "transformer/model.h"

namespace trireme {

class Communicator;
struct Ctx;

class LoadedModel {
 public:
  // Reads the configuration of the newest whole checkpoint of a run directory, or of that checkpoint, with
  // a warning for each that is passed over. Collective over the ranks that will hold the model, and so are
  // its failures (parallel/agree.h).
  LoadedModel(const std::string& path, Communicator& group);
  // Reads the parameters that a rank at this place of a layout holds, and readies the model for
  // sequences of `positions` tokens. InputError when the tensors do not fit the configuration.
  void load(Ctx& ctx, const Layout& layout, int64_t positions);
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
