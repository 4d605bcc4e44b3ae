#include "serving/model/served_model.h"

#include "parallel/agree.h"
#include "serving/engine/model_drafting.h"

namespace trireme {

int64_t cache_bytes(const ServedModelOptions& options, std::optional<int64_t> of_gpu) {
  constexpr int64_t kOnHost = int64_t{4} << 30;
  return options.cache_bytes > 0 ? options.cache_bytes : of_gpu.value_or(kOnHost);
}

std::unique_ptr<Drafter> ServedModel::make_drafter() { return nullptr; }

void ServedModel::open(const ServedModelOptions& options, World& world) {
  loaded_ =
      std::make_unique<LoadedModel>(options.model, world.world(), options.dtype, options.adapter,
                                    options.quantization, options.modules, options.adapter_slots);
  if (options.allow_non_finite) loaded_->allow_non_finite();
  limits_.adapters = !options.modules.empty() || options.adapter_slots.count > 0;
  const ModelConfig& model = loaded_->config();
  agreed(world.world(), [&] {
    spec_ = loaded_->tokenizer_spec(options.tokenizer);
    tokenizer_ = loaded_->open_tokenizer(spec_);
    const int64_t longest = longest_sequence(model);
    if (options.max_model_len > longest)
      fail_input("--max-model-len ", options.max_model_len, ": the model has only ", longest,
                 " positions");
    if (options.max_batched_tokens > 0 && options.max_batched_tokens < options.max_num_seqs)
      fail_input("--max-num-batched-tokens ", options.max_batched_tokens,
                 ": expected at least --max-num-seqs ", options.max_num_seqs,
                 ": a step has a token of each running sequence");
    limits_.length = options.max_model_len > 0 ? options.max_model_len : longest;
    if (limits_.length < 2)
      fail_input("--max-model-len: expected at least 2, for a prompt token and a generated one");
  });
}

}  // namespace trireme
