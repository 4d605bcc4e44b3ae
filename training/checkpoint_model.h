// A checkpoint of ours as the source of a model: what is read from it may be converted, exported and compared
// like the files of others.
#pragma once

#include <optional>
#include <string>

#include "engine/io/sharded_checkpoint.h"
#include "training/run_config.h"
#include "transformer/file_tensor.h"

namespace trireme {

class CheckpointModel : public ModelSource {
 public:
  // A step directory, or the directory that holds `latest`.
  explicit CheckpointModel(const std::string& path);
  const RunConfig& run_config() const { return run_config_; }
  const char* kind() const override { return "trireme"; }
  std::string tokenizer() const override { return run_config_.data.tokenizer; }
  // Each run of a box in one access of its shard, where the dtype is that of the checkpoint.
  void read(const ModelConfig& config, const ModelParameter& parameter, const TensorBox& box,
            int64_t begin, const Tensor& destination) const override;
  ParameterPlace place(const ModelConfig& config, const std::string& parameter) const override;

 protected:
  bool is_ignored(const ModelConfig& config, const std::string& tensor) const override;

 private:
  RunConfig run_config_;
};

// Where a model of ours lies: the newest whole checkpoint of a run, or the checkpoint that `path` names, every byte of
// which was read once; of others: `path`. InputError where there is none.
std::string find_model(const std::string& path);
// Opens what find_model() or find_base() found; a checkpoint of adapters with the model they are for, added to its
// weights.
std::unique_ptr<ModelSource> open_found_model(const std::string& place);
std::unique_ptr<ModelSource> open_any_model(const std::string& path);  // both
// For the configuration and the tokenizer alone, of the newest checkpoint that a run has saved, else of a model that
// open_any_model() would open: nothing of ours is read but a manifest, and adapters are not added to their base.
std::unique_ptr<ModelSource> open_described_model(const std::string& saved,
                                                  const std::string& path);

// A model with adapters added to its weights: a directory of PEFT's, or a run or checkpoint of adapters.
std::unique_ptr<ModelSource> open_merged_model(const std::string& base,
                                               const std::string& adapters);

// What a model of others is evaluated and generated with: no data, sequences of at most 2048 tokens.
// tokenizer: what load_tokenizer() takes, or empty.
RunConfig foreign_run_config(const ModelConfig& model, DType dtype, const std::string& tokenizer);
// The state of a checkpoint that holds nothing but such a model, and its configuration again.
Json foreign_state(const RunConfig& config);
bool is_foreign_state(const Json& state);
// checkpoint: its directory; the tokenizer's copy lies beside it.
RunConfig foreign_state_config(const Json& state, const std::string& checkpoint);

struct ImportOptions {
  std::optional<DType> dtype = {};  // absent: of each tensor what it has
  CopyProgress progress = {};
};
// Writes a model as checkpoint `root`/step-00000000, streaming, with the tokenizer's files in root/tokenizer.
// Whole or absent; one that was interrupted goes on where the same is asked again (transformer/unfinished_copy.h).
// InputError where `root` holds anything else.
SavedCheckpoint import_model(const ModelSource& source, const std::string& root,
                             const ImportOptions& options);

}  // namespace trireme
