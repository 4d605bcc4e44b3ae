// A model of one process, loaded and divided into memory for `trireme serve`.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/device.h"
#include "parallel/groups.h"
#include "serving/engine/model_executor.h"
#include "training/loaded_model.h"

namespace trireme {

struct ServedModelOptions {
  std::string model, adapter, tokenizer, device = "auto";
  std::vector<std::string> modules;  // directories of adapters that requests choose among
  std::optional<DType> dtype;
  int threads = 0;                 // 0: all cores
  int64_t max_model_len = 0;       // 0: the model's, or as much as the cache holds
  int64_t max_num_seqs = 0;        // 0: 256
  int64_t max_batched_tokens = 0;  // 0: 512, of a GPU 2048
  int64_t cache_bytes =
      0;  // 0: 4 GiB, of a GPU half of what is free; no more than all sequences need
};

class ServedModel {
 public:
  // Loads it. InputError for what does not fit together.
  explicit ServedModel(const ServedModelOptions& options);

  const StepLimits& limits() const { return limits_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const std::string& tokenizer_spec() const { return spec_; }
  const LoadedModel& loaded() const { return *loaded_; }
  DType dtype() { return loaded_->parameters().dtype(); }
  std::string device() const { return describe_device(device_, threads_); }
  // Once, for the engine. One process takes the machine's first GPU, which is the current one of every thread.
  std::unique_ptr<StepExecutor> make_executor();
  // From now on what runs parallel loops is the calling thread's.
  void move_here();

 private:
  void load(const ServedModelOptions& options);
  void divide_memory(const ServedModelOptions& options);

  std::unique_ptr<World> world_;
  RankDevice device_;  // outlives what lies on it
  int threads_ = 0;
  std::string spec_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<LoadedModel> loaded_;
  std::unique_ptr<Groups> groups_;
  std::unique_ptr<Ctx> ctx_;
  StepLimits limits_;
};

}  // namespace trireme
