// A checkpoint of ours as the source of a model: what is read from it may be converted, exported and compared
// like the files of others.
#pragma once

#include <string>

#include "training/run_config.h"
#include "transformer/model_source.h"

namespace trireme {

class CheckpointModel : public ModelSource {
 public:
  // A step directory, or the directory that holds `latest`.
  explicit CheckpointModel(const std::string& path);
  const RunConfig& run_config() const { return run_config_; }
  std::string tokenizer() const override { return run_config_.data.tokenizer; }
  ParameterPlace place(const ModelConfig& config, const std::string& parameter) const override;

 protected:
  bool is_ignored(const ModelConfig& config, const std::string& tensor) const override;

 private:
  RunConfig run_config_;
};

// A model of others, or the newest whole checkpoint of a run, or the checkpoint that `path` names.
std::unique_ptr<ModelSource> open_any_model(const std::string& path);

// What a model of others is evaluated and generated with: no data, sequences of at most 2048 tokens.
// tokenizer: what load_tokenizer() takes, or empty.
RunConfig foreign_run_config(const ModelConfig& model, DType dtype, const std::string& tokenizer);
// The state of a checkpoint that holds nothing but such a model, and its configuration again.
Json foreign_state(const RunConfig& config);
bool is_foreign_state(const Json& state);
RunConfig foreign_state_config(const Json& state);

}  // namespace trireme
