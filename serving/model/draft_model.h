// Draft model of `trireme serve` (serving/scheduler/model_drafter.h). It is not split over ranks:
// the process that accepts requests loads all of it, in addition to its shard of the served model,
// if any.
#pragma once

#include <mutex>

#include "serving/model/served_model.h"

namespace trireme {

class DraftModel {
 public:
  // Opens options.draft. InputError if it has no tokenizer, or if its tokens differ from those of
  // `tokenizer`, since drafts are token ids.
  DraftModel(const ServedModelOptions& options, const Tokenizer& tokenizer);

  // Loads the parameters. gpu: nullptr: on the CPU, with this many threads. length: maximum tokens
  // of a served sequence. Sequences longer than the draft model's own maximum get no drafts.
  void load(int threads, cuda::Context* gpu, int64_t length);
  const ModelConfig& config() const { return loaded_->config(); }
  // Bytes of a drafter's KV cache for each block of the served model's cache.
  int64_t bytes_beside_block(const StepLimits& served);
  // Sets the size of each drafter's KV cache: the blocks that all drafted sequences need, but at
  // most for as many tokens as the served model's cache holds.
  void divide_memory(const StepLimits& served);
  // The same with at most `bytes` of memory for the caches of all drafters together. InputError if
  // a cache would have no block.
  void divide_memory(const StepLimits& served, int64_t bytes, size_t drafters);
  // Makes the drafter of one engine, after load() and divide_memory(). The drafters of several
  // engines run one at a time.
  std::unique_ptr<Drafter> make_drafter();
  int threads() const { return threads_; }  // of load()

 private:
  int64_t block_bytes(int64_t block_tokens);
  int64_t sequences_;
  int64_t vocab_size_;
  StepLimits limits_;
  int threads_ = 1;
  cuda::Context* gpu_ = nullptr;
  std::unique_ptr<LoadedModel> loaded_;
  std::vector<std::unique_ptr<Ctx>> contexts_;  // by drafter
  std::shared_ptr<std::mutex> turn_ = std::make_shared<std::mutex>();
};

}  // namespace trireme
