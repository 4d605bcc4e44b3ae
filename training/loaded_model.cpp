#include "training/loaded_model.h"

#include <nlohmann/json.hpp>

#include "training/run_directory.h"
#include "training/train_checkpoint.h"

namespace trireme {

LoadedModel::LoadedModel(const std::string& checkpoint) : checkpoint_(checkpoint) {
  const CheckpointReader reader(checkpoint_);
  config_ = checkpoint_run_config(reader);
  step_ = reader.step();
}

void LoadedModel::load(const Layout& layout, int64_t positions) {
  const CheckpointReader reader(checkpoint_);
  const std::vector<ChunkSpan> chunks =
      chunks_of(split_layers(config_.model.num_layers, layout.pp.size, {}), layout.pp);
  model_ = std::make_unique<Model>(config_.model, config_.dtype, layout, chunks);
  model_->reserve_positions(positions);
  store_ = std::make_unique<ParameterStore>(model_->parameters(), config_.dtype);
  store_->allocate(false);
  load_parameters(reader, *model_, *store_);
}

}  // namespace trireme
