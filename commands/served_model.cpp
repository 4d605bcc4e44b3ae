#include "commands/served_model.h"

#include <algorithm>

#include "commands/rank_options.h"
#include "engine/core/cpu.h"
#include "engine/device/timing.h"
#include "engine/observe/log.h"
#include "parallel/launch.h"
#include "transformer/sharding.h"

namespace trireme {
namespace {

constexpr int64_t kBlockTokens = 16;
constexpr int64_t kSequences = 256, kStepTokens = 512, kStepTokensOfGpu = 2048;
constexpr int64_t kHostCacheBytes = int64_t{4} << 30;

int64_t or_default(int64_t asked, int64_t otherwise) { return asked > 0 ? asked : otherwise; }

}  // namespace

ServedModel::ServedModel(const ServedModelOptions& options) {
  world_ = make_world(world_options(CommConfig{}));
  if (world_->size() > 1)
    fail_input(world_->size(), " ranks: a model that several ranks hold together is not served ",
               "yet; start one process");
  loaded_ = std::make_unique<LoadedModel>(options.model, world_->world(), options.dtype,
                                          options.adapter, options.modules);
  limits_.adapters = !options.modules.empty();
  const RunConfig& trained = loaded_->run_config();
  spec_ = loaded_->tokenizer_spec(options.tokenizer);
  tokenizer_ = loaded_->open_tokenizer(spec_);
  const int64_t longest = longest_sequence(trained.model);
  if (options.max_model_len > longest)
    fail_input("--max-model-len ", options.max_model_len, ": the model has ", longest,
               " positions");
  limits_.length = or_default(options.max_model_len, longest);
  if (limits_.length < 2) fail_input("--max-model-len must be at least 2: a prompt and a token");
  load(options);
  divide_memory(options);
}

void ServedModel::load(const ServedModelOptions& options) {
  const RunConfig& trained = loaded_->run_config();
  device_ = open_rank_device(*world_, options.device, trained.comm.device_backend);
  groups_ =
      std::make_unique<Groups>(world_->world(), ParallelSizes{}, kv_head_copies(trained.model, 1));
  threads_ = pin_rank(*world_, options.threads);
  ctx_ = std::make_unique<Ctx>(threads_, "activations", device_.get());
  loaded_->load(*ctx_, groups_->layout, limits_.length);
}

// How many sequences run at a time, and what their keys and values take.
void ServedModel::divide_memory(const ServedModelOptions& options) {
  const bool gpu = device_.get() != nullptr;
  limits_.sequences = or_default(options.max_num_seqs, kSequences);
  limits_.tokens =
      std::max(or_default(options.max_batched_tokens, gpu ? kStepTokensOfGpu : kStepTokens),
               limits_.sequences);
  limits_.block_tokens = kBlockTokens;
  const int64_t of_block = kv_block_bytes(loaded_->model(), dtype(), groups_.get(), kBlockTokens);
  const int64_t otherwise = gpu ? cuda::device_memory(*device_.get()).free() / 2 : kHostCacheBytes;
  const int64_t bytes = or_default(options.cache_bytes, otherwise), held = bytes / of_block;
  if (held == 0)
    fail_input("--kv-cache-memory-bytes ", bytes, ": ", kBlockTokens, " tokens take ", of_block);
  if (limits_.length > held * kBlockTokens) {
    if (options.max_model_len > 0)
      fail_input("--max-model-len ", limits_.length, ": the KV cache of ", bytes, " bytes holds ",
                 held * kBlockTokens, " tokens; give more --kv-cache-memory-bytes");
    limits_.length = held * kBlockTokens;
    log_warning("sequences of at most ", limits_.length,
                " tokens are served, which the KV cache of ", bytes,
                " bytes holds: --kv-cache-memory-bytes sets its size");
  }
  limits_.blocks = std::min(held, checked_mul(limits_.sequences, limits_.blocks_of_sequence()));
}

std::unique_ptr<StepExecutor> ServedModel::make_executor() {
  return std::make_unique<ModelExecutor>(loaded_->model(), loaded_->parameters(), *ctx_,
                                         groups_.get(),
                                         ExecutorConfig{.limits = limits_,
                                                        .vocab_size = tokenizer_->vocab_size(),
                                                        .adapters = loaded_->module_columns()});
}

void ServedModel::move_here() { pin_team(0, threads_); }

}  // namespace trireme
