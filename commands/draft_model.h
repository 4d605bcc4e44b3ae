// The second model of `trireme serve`, which guesses for the first (serving/scheduler/model_drafter.h). One process has
// both, on one device.
#pragma once

#include "commands/served_model.h"

namespace trireme {

class DraftModel {
 public:
  // Opens options.draft. InputError where its tokens are not those of `tokenizer`: a guess is a number.
  DraftModel(const ServedModelOptions& options, const Tokenizer& tokenizer, World& world);

  // Reads its parameters. length: of the longest sequences that are served; it guesses for texts up to its own.
  void load(int threads, cuda::Context* gpu, int64_t length);
  // Of the keys and values of block_tokens tokens.
  int64_t block_bytes(int64_t block_tokens);
  // Its cache has as many blocks as the served model's, or as all that it guesses for need.
  void divide_memory(const StepLimits& served);
  std::unique_ptr<Drafter> make_drafter();
  const StepLimits& limits() const { return limits_; }

 private:
  int64_t sequences_;
  int64_t vocab_size_;
  StepLimits limits_;
  std::unique_ptr<LoadedModel> loaded_;
  std::unique_ptr<Ctx> ctx_;
};

}  // namespace trireme
