#include "serving/engine/generate.h"

#include <algorithm>
#include <numeric>

namespace trireme {
namespace {

// Runs `ids` behind what the cache holds and leaves the last token's logits in `logits` (1, V).
void forward(const Model& model, ParameterStore& params, Ctx& ctx, ContiguousKvCache& cache,
             std::span<const int32_t> ids, const Tensor& logits) {
  const auto count = std::ssize(ids);
  const int64_t past = cache.length();
  std::vector<int32_t> positions(ids.size());
  std::iota(positions.begin(), positions.end(), static_cast<int32_t>(past));
  int32_t cu_q[2] = {0, static_cast<int32_t>(count)};
  int32_t cu_k[2] = {0, static_cast<int32_t>(past + count)};
  Tokens tokens;
  tokens.count = count;
  tokens.ids = ConstTensor(ids.data(), DType::kI32, Shape{count});
  tokens.positions = ConstTensor(positions.data(), DType::kI32, Shape{count});
  tokens.cu_q = ConstTensor(cu_q, DType::kI32, Shape{2});
  tokens.cu_k = ConstTensor(cu_k, DType::kI32, Shape{2});
  Pass pass{ctx, params, tokens, nullptr, &cache};
  model.infer(pass, logits);
  cache.advance(count);
}

}  // namespace

Generation generate(const Model& model, ParameterStore& params, Ctx& ctx,
                    std::span<const int32_t> prompt, const GenerateOptions& options,
                    const std::function<bool(int32_t)>& on_token) {
  const ModelConfig& config = model.config();
  if (prompt.empty()) fail_input("the prompt is empty; give at least one token");
  if (std::ssize(prompt) >= config.max_positions)
    fail_input("the prompt has ", prompt.size(), " tokens; the model has ", config.max_positions,
               " positions and needs room for at least one more");
  const int64_t choices = options.vocab_size > 0 ? options.vocab_size : config.vocab_size;
  TRIREME_CHECK(choices <= config.vocab_size, choices, " ids of ", config.vocab_size);
  const int64_t room = config.max_positions - std::ssize(prompt);
  const int64_t limit = std::min(options.max_new_tokens, room);
  const Mode before = std::exchange(ctx.mode, Mode::kInfer);
  ContiguousKvCache cache(config.num_layers, std::ssize(prompt) + limit, config.num_kv_heads,
                          config.head_dim, params.dtype());
  std::vector<float> logits(static_cast<size_t>(config.vocab_size));
  const Tensor logits_view(logits.data(), DType::kF32, Shape{1, config.vocab_size});
  Sampler sampler(options.sampling);
  Generation out;
  out.reason = limit < options.max_new_tokens ? StopReason::kContextFull : StopReason::kLength;
  forward(model, params, ctx, cache, prompt, logits_view);
  for (int64_t n = 0; n < limit; ++n) {
    const SampledToken token = sampler.sample(std::span(logits).first(static_cast<size_t>(choices)),
                                              std::ssize(prompt) + n);
    if (token.id == options.stop_token) {
      out.reason = StopReason::kStopToken;
      break;
    }
    out.tokens.push_back(token.id);
    out.logprobs.push_back(token.logprob);
    if (on_token && !on_token(token.id)) break;
    if (n + 1 < limit) forward(model, params, ctx, cache, {&out.tokens.back(), 1}, logits_view);
  }
  ctx.mode = before;
  return out;
}

}  // namespace trireme
