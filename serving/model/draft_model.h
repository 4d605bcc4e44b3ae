// The second model of `trireme serve`, which guesses for the first
// (serving/scheduler/model_drafter.h). The process with the requests has all of it: beside its part
// of the first model where it computes that too, else alone.
#pragma once

#include <mutex>

#include "serving/model/served_model.h"

namespace trireme {

class DraftModel {
 public:
  // Opens options.draft. InputError where its tokens are not those of `tokenizer`: a guess is a
  // number.
  DraftModel(const ServedModelOptions& options, const Tokenizer& tokenizer);

  // Reads its parameters. length: of the longest sequences that are served; it guesses for texts up
  // to its own.
  void load(int threads, cuda::Context* gpu, int64_t length);
  // Of the keys and values of block_tokens tokens.
  int64_t block_bytes(int64_t block_tokens);
  // Each drafter's cache has as many blocks as the served model's, or as all that it guesses for
  // need.
  void divide_memory(const StepLimits& served);
  // The same where that has no room for it: bytes of memory, for the caches of so many drafters
  // together.
  void divide_memory(const StepLimits& served, int64_t bytes, size_t drafters);
  // For each engine one. They take turns.
  std::unique_ptr<Drafter> make_drafter();
  int threads() const { return threads_; }

 private:
  int64_t sequences_;
  int64_t vocab_size_;
  StepLimits limits_;
  int threads_ = 1;
  cuda::Context* gpu_ = nullptr;
  std::unique_ptr<LoadedModel> loaded_;
  std::vector<std::unique_ptr<Ctx>> contexts_;  // of the drafters
  std::shared_ptr<std::mutex> turn_ = std::make_shared<std::mutex>();
};

}  // namespace trireme
