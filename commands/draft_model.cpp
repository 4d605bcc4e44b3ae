#include "commands/draft_model.h"

#include <algorithm>

#include "parallel/agree.h"
#include "serving/engine/model_drafting.h"

namespace trireme {
namespace {

constexpr char kOption[] = "--speculative-config";

void check_same_tokens(const std::string& model, const Tokenizer& draft, const Tokenizer& served) {
  if (draft.vocab_size() != served.vocab_size())
    fail_input(kOption, ": the draft ", model, " has a vocabulary of ", draft.vocab_size(),
               " tokens, the model one of ", served.vocab_size(),
               "; a draft has the model's tokenizer");
  const auto id = static_cast<int32_t>(served.vocab_size());
  for (int32_t i = 0; i < id; ++i)
    if (draft.token(i) != served.token(i))
      fail_input(kOption, ": token ", i, " is \"", draft.token(i), "\" for the draft ", model,
                 ", \"", served.token(i), "\" for the model; a draft has the model's tokenizer");
}

}  // namespace

DraftModel::DraftModel(const ServedModelOptions& options, const Tokenizer& tokenizer, World& world)
    : sequences_(options.draft_sequences), vocab_size_(tokenizer.vocab_size()) {
  if (world.size() > 1)
    fail_input(kOption, ": a draft model guesses for one process, and here are ", world.size(),
               " ranks; \"method\": \"ngram\" goes with any number");
  loaded_ = std::make_unique<LoadedModel>(options.draft, world.world(), options.dtype, "",
                                          options.quantization);
  const std::string& own = loaded_->run_config().data.tokenizer;
  if (own.empty())
    fail_input(kOption, ": the draft ", options.draft,
               " names no tokenizer, so nobody knows whether its tokens are the model's");
  check_same_tokens(options.draft, *loaded_->open_tokenizer(own), tokenizer);
}

void DraftModel::load(int threads, cuda::Context* gpu, int64_t length) {
  limits_.length = std::min(length, longest_sequence(loaded_->run_config().model));
  ctx_ = std::make_unique<Ctx>(threads, "draft activations", gpu);
  loaded_->load(*ctx_, Layout{}, limits_.length);
}

int64_t DraftModel::block_bytes(int64_t block_tokens) {
  return kv_block_bytes(loaded_->model(), KvType{loaded_->parameters().dtype()}, nullptr,
                        block_tokens);
}

void DraftModel::divide_memory(const StepLimits& served) {
  limits_.sequences = std::min(sequences_, served.sequences);
  limits_.tokens = served.tokens;
  limits_.block_tokens = served.block_tokens;
  limits_.blocks =
      std::min(served.blocks, checked_mul(limits_.sequences, limits_.blocks_of_sequence()));
}

std::unique_ptr<Drafter> DraftModel::make_drafter() {
  return make_model_drafter(loaded_->model(), loaded_->parameters(), *ctx_,
                            {.limits = limits_, .vocab_size = vocab_size_});
}

}  // namespace trireme
