#include "serving/engine/generate.h"

#include <algorithm>
#include <memory>

#include "serving/engine/model_executor.h"
#include "serving/scheduler/scheduler.h"

namespace trireme {
namespace {

// One sequence, whose prompt is computed in one step.
StepLimits limits_of(const ModelConfig& config, int64_t positions, int64_t prompt,
                     const GenerateOptions& options) {
  StepLimits limits{.tokens = prompt,
                    .sequences = 1,
                    .length = positions,
                    .block_tokens = kv_block_tokens(config),
                    .windows = kv_windows(config, positions),
                    .kv_type = options.kv_type};
  limits.blocks = limits.blocks_of_sequence();
  return limits;
}

// Scheduler, cache and executor of a single sequence.
struct Decoder {
  Decoder(const Model& model, ParameterStore& params, Ctx& ctx, const StepLimits& limits,
          const GenerateOptions& options)
      : blocks(limits.blocks, limits.block_tokens, 0),
        scheduler({.max_sequences = 1,
                   .max_step_tokens = limits.tokens,
                   .max_model_len = limits.length,
                   .windows = limits.windows,
                   .prefix_caching = false},
                  blocks),
        executor(model, params, ctx, options.groups,
                 {.limits = limits, .vocab_size = options.vocab_size}) {}

  KvBlockPool blocks;
  Scheduler scheduler;
  ModelExecutor executor;
};

std::shared_ptr<const SamplingParams> params_of(const GenerateOptions& options) {
  check_sampling_params(options.sampling);
  auto params = std::make_shared<SamplingParams>();
  params->sampling = options.sampling;
  params->top_logprobs = 0;
  params->stop_token_ids = options.stop_tokens;
  return params;
}

}  // namespace

int64_t positions_of(const ModelConfig& config, std::span<const int32_t> prompt,
                     const GenerateOptions& options) {
  const int64_t used = std::min<int64_t>(longest_sequence(config), std::ssize(prompt));
  return used + std::min(longest_sequence(config) - used, options.max_new_tokens);
}

Generation generate(const Model& model, ParameterStore& params, Ctx& ctx,
                    std::span<const int32_t> prompt, const GenerateOptions& options,
                    const std::function<bool(int32_t)>& on_token) {
  const ModelConfig& config = model.config();
  if (prompt.empty()) fail_input("the prompt is empty; give at least one token");
  if (std::ssize(prompt) >= longest_sequence(config))
    fail_input("the prompt has ", prompt.size(), " tokens; the model has ",
               longest_sequence(config), " positions and needs room for at least one more");
  const int64_t positions = positions_of(config, prompt, options);
  Generation out;
  out.reason = StopReason::kLength;
  const int64_t room = positions - std::ssize(prompt);
  if (room < options.max_new_tokens) out.reason = StopReason::kContextFull;
  if (room == 0) return out;
  Decoder decoder(model, params, ctx, limits_of(config, positions, std::ssize(prompt), options),
                  options);
  decoder.scheduler.add(
      std::make_shared<Sequence>(SequenceRequest{.prompt = {prompt.begin(), prompt.end()},
                                                 .sampling_params = params_of(options),
                                                 .max_tokens = room}));
  while (!decoder.scheduler.idle()) {
    const SchedulerOutput plan = decoder.scheduler.next();
    std::vector<Progress> progress = decoder.scheduler.done(plan, decoder.executor.execute(plan));
    for (const Progress& step : progress) {
      if (step.finish == FinishReason::kError)
        fail_input("the logits of token ", out.tokens.size() + 1,
                   " are not finite: the weights are not finite, or values overflow their type");
      if (step.finish == FinishReason::kStop) {
        out.reason = StopReason::kStopToken;
        return out;
      }
      for (const OutputToken& token : step.tokens) {
        out.tokens.push_back(token.id);
        out.logprobs.push_back(token.logprob);
        if (on_token && !on_token(token.id)) return out;
      }
    }
  }
  return out;
}

}  // namespace trireme
