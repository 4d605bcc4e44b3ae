#include "serving/model/draft_model.h"

#include <algorithm>

#include "parallel/agree.h"
#include "serving/engine/model_drafting.h"

namespace trireme {
namespace {

constexpr char kDraftOption[] = "--speculative-config";

void check_same_tokens(const std::string& model, const Tokenizer& draft, const Tokenizer& served) {
  if (draft.vocab_size() != served.vocab_size())
    fail_input(kDraftOption, ": the draft ", model, " has a vocabulary of ", draft.vocab_size(),
               " tokens, expected the model's ", served.vocab_size(),
               "; a draft model must have the model's tokenizer");
  const auto id = static_cast<int32_t>(served.vocab_size());
  for (int32_t i = 0; i < id; ++i)
    if (draft.token(i) != served.token(i))
      fail_input(kDraftOption, ": token ", i, " is \"", draft.token(i), "\" in the draft ", model,
                 ", \"", served.token(i),
                 "\" in the model; a draft model must have the model's tokenizer");
}

}  // namespace

DraftModel::DraftModel(const ServedModelOptions& options, const Tokenizer& tokenizer)
    : sequences_(options.draft_sequences), vocab_size_(tokenizer.vocab_size()) {
  run_threads(1, [&](Communicator& alone) {
    loaded_ = std::make_unique<LoadedModel>(options.draft, alone, options.dtype, "",
                                            options.quantization);
    if (options.allow_non_finite) loaded_->allow_non_finite();
  });
  const std::string& own = loaded_->bundle().tokenizer;
  if (own.empty())
    fail_input(kDraftOption, ": the draft ", options.draft,
               " has no tokenizer, expected the model's");
  check_same_tokens(options.draft, *loaded_->open_tokenizer(own), tokenizer);
}

void DraftModel::load(int threads, cuda::Context* gpu, int64_t length) {
  threads_ = threads;
  gpu_ = gpu;
  limits_.length = std::min(length, longest_sequence(loaded_->config()));
  Ctx ctx(threads, "draft", gpu);
  loaded_->load(ctx, Layout{}, limits_.length);
}

int64_t DraftModel::block_bytes(int64_t block_tokens) {
  return kv_block_bytes(loaded_->model(), KvType{loaded_->parameters().dtype()}, nullptr,
                        block_tokens, StepLimits().windows);
}

namespace {

// Blocks of one group of layers, which keeps all tokens, beside so many of the served model's.
int64_t blocks_beside(const StepLimits& served, int64_t blocks) {
  const int64_t of_sequence = ceil_div(served.length, served.block_tokens);
  return ceil_div(checked_mul(blocks, of_sequence), served.blocks_of_sequence());
}

}  // namespace

int64_t DraftModel::bytes_beside_block(const StepLimits& served) {
  return blocks_beside(served, block_bytes(served.block_tokens));
}

void DraftModel::divide_memory(const StepLimits& served) {
  limits_.length = std::min(limits_.length, served.length);
  limits_.sequences = std::min(sequences_, served.sequences);
  limits_.tokens = served.tokens;
  limits_.block_tokens = served.block_tokens;
  limits_.blocks = std::min(blocks_beside(served, served.blocks),
                            checked_mul(limits_.sequences, limits_.blocks_of_sequence()));
}

void DraftModel::divide_memory(const StepLimits& served, int64_t bytes, size_t drafters) {
  divide_memory(served);
  const int64_t of_block = block_bytes(served.block_tokens);
  const int64_t held = bytes / static_cast<int64_t>(drafters) / of_block;
  if (held == 0)
    fail_input(
        "--kv-cache-memory-bytes ", bytes, ": ", served.block_tokens,
        " tokens of the draft model's KV cache need ", of_block, " bytes, for each of ", drafters,
        drafters == 1 ? " replica" : " replicas",
        gpu_ != nullptr ? "; a lower --gpu-memory-utilization of the ranks leaves it more" : "");
  limits_.blocks = std::min(limits_.blocks, held);
}

std::unique_ptr<Drafter> DraftModel::make_drafter() {
  Ctx& ctx = *contexts_.emplace_back(std::make_unique<Ctx>(threads_, "draft activations", gpu_));
  return make_model_drafter(loaded_->model(), loaded_->parameters(), ctx,
                            {.limits = limits_, .vocab_size = vocab_size_}, turn_);
}

}  // namespace trireme
