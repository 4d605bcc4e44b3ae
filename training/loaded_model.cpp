#include "training/loaded_model.h"

#include <nlohmann/json.hpp>

#include "engine/observe/log.h"
#include "parallel/agree.h"
#include "training/run_directory.h"
#include "training/train_checkpoint.h"

namespace trireme {

LoadedModel::LoadedModel(const std::string& path, Communicator& group)
    : checkpoint_(from_rank_0(group, [&] {
        const NewestCheckpoint newest = find_checkpoint(checkpoint_place(path));
        for (const std::string& why : newest.skipped) log_warning(why);
        return newest.directory;
      })) {
  agreed(group, [&] {
    const CheckpointReader reader(checkpoint_);
    config_ = checkpoint_run_config(reader);
    step_ = reader.step();
  });
}

void LoadedModel::load(Ctx& ctx, const Layout& layout, int64_t positions) {
  const CheckpointReader reader(checkpoint_);
  const std::vector<ChunkSpan> chunks =
      chunks_of(split_layers(config_.model.num_layers, layout.pp.size, {}), layout.pp);
  model_ = std::make_unique<Model>(config_.model, config_.dtype, layout, chunks);
  model_->reserve_positions(ctx, positions);
  store_ = std::make_unique<ParameterStore>(model_->parameters(), config_.dtype);
  store_->allocate(ctx, false);
  load_parameters(ctx, reader, *model_, *store_);
}

}  // namespace trireme
