// Draft model of `trireme serve` (serving/scheduler/model_drafter.h). The process that accepts
// requests holds all of it, besides its part of the served model if it has one.
#pragma once

#include <mutex>

#include "serving/model/served_model.h"

namespace trireme {

class DraftModel {
 public:
  // Opens options.draft. InputError if its tokenizer has other token ids than `tokenizer`: drafts
  // are ids.
  DraftModel(const ServedModelOptions& options, const Tokenizer& tokenizer);

  // Loads the parameters. length: maximum tokens of a served sequence. Sequences longer than the
  // draft model's own maximum get no drafts.
  void load(int threads, cuda::Context* gpu, int64_t length);
  // Bytes of the draft model's keys and values of block_tokens tokens.
  int64_t block_bytes(int64_t block_tokens);
  // Sets the size of each drafter's KV cache: as many blocks as the served model's cache has, or as
  // all drafted sequences need, if fewer.
  void divide_memory(const StepLimits& served);
  // The same with at most `bytes` of memory for the caches of all drafters together.
  void divide_memory(const StepLimits& served, int64_t bytes, size_t drafters);
  // Makes the drafter of one engine. Drafters of several engines compute in turn.
  std::unique_ptr<Drafter> make_drafter();
  int threads() const { return threads_; }

 private:
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
