#include "serving/engine/generate.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include "parallel/pipeline/executor.h"
#include "transformer/sharding.h"

namespace trireme {
namespace {

// What a rank computes for new tokens of one sequence: its part of the model, behind what its cache holds.
class DecodeStage final : public PipelineStage {
 public:
  DecodeStage(const Model& model, ParameterStore& params, Ctx& ctx, const Groups* groups,
              int64_t max_tokens)
      : model_(model), params_(params), ctx_(ctx), groups_(groups), cache_(cache_of(max_tokens)) {}

  // Ids whose hidden states pass through this rank next; the last one's logits go to `logits` (1, V) where
  // the head is. Both must stay until the pass ends.
  void begin(std::span<const int32_t> ids, const Tensor& logits) {
    const auto count = std::ssize(ids);
    const int64_t past = cache_.length();
    positions_.resize(ids.size());
    std::iota(positions_.begin(), positions_.end(), static_cast<int32_t>(past));
    cu_q_ = {0, static_cast<int32_t>(count)};
    cu_k_ = {0, static_cast<int32_t>(past + count)};
    tokens_.count = count;
    tokens_.ids = ConstTensor(ids.data(), DType::kI32, Shape{count});
    tokens_.positions = ConstTensor(positions_.data(), DType::kI32, Shape{count});
    tokens_.position_end = past + count;
    tokens_.cu_q = ConstTensor(cu_q_.data(), DType::kI32, Shape{2});
    tokens_.cu_k = ConstTensor(cu_k_.data(), DType::kI32, Shape{2});
    logits_ = logits;
  }
  void end() { cache_.advance(tokens_.count); }

  Activation forward(int chunk, int /*micro_batch*/, Activation x) override {
    Pass pass{ctx_, params_, tokens_, groups_, &cache_};
    Activation y = model_.forward(pass, chunk, std::move(x), nullptr, Recompute::kNone);
    if (!model_.has_head(chunk)) return y;
    model_.logits(pass, std::move(y), logits_);
    return {};
  }
  Activation allocate_hidden(int /*chunk*/, int /*micro_batch*/, bool /*gradient*/) override {
    return ctx_.allocate("pipeline.hidden", params_.dtype(),
                         Shape{tokens_.count, model_.config().hidden_size});
  }
  Activation backward_input(int /*chunk*/, int /*micro_batch*/, Activation /*dy*/) override {
    TRIREME_UNREACHABLE("backward while decoding");
  }
  void backward_weight(int /*chunk*/, int /*micro_batch*/) override {
    TRIREME_UNREACHABLE("backward while decoding");
  }

 private:
  ContiguousKvCache cache_of(int64_t max_tokens) const {
    TRIREME_CHECK(model_.chunks() == 1, "decoding takes one chunk a rank, got ", model_.chunks());
    const ModelConfig& config = model_.config();
    const Place tp = groups_ != nullptr ? groups_->layout.tp : Place{};
    const int64_t kv_width = head_slice(config.num_kv_heads, config.head_dim, tp).size();
    const ChunkSpan& layers = model_.span(0);
    return {layers.layers(), max_tokens,      kv_width / config.head_dim,
            config.head_dim, params_.dtype(), layers.first_layer};
  }

  const Model& model_;
  ParameterStore& params_;
  Ctx& ctx_;
  const Groups* groups_;
  ContiguousKvCache cache_;
  std::vector<int32_t> positions_;
  std::array<int32_t, 2> cu_q_{}, cu_k_{};
  Tokens tokens_;
  Tensor logits_;
};

// The same on every rank of the model: logits come to all of them, and each samples for itself.
class Decoder {
 public:
  Decoder(const Model& model, ParameterStore& params, Ctx& ctx, const Groups* groups,
          int64_t max_tokens)
      : ctx_(ctx),
        stage_(model, params, ctx, groups, max_tokens),
        logits_(static_cast<size_t>(model.config().vocab_size)) {
    if (groups == nullptr || groups->pp->size() == 1) return;
    pp_ = groups->pp.get();
    executor_.emplace(make_schedule(ScheduleKind::kForwardOnly, pp_->size(), 1, 1), *pp_);
  }

  // Logits (V) of what follows `ids`, valid until the next call.
  std::span<const float> run(std::span<const int32_t> ids) {
    const Tensor view(logits_.data(), DType::kF32, Shape{1, std::ssize(logits_)});
    stage_.begin(ids, view);
    if (pp_ == nullptr) {
      stage_.forward(0, 0, {});
    } else {
      executor_->run(stage_, ctx_);
      pp_->broadcast(view, pp_->size() - 1);
    }
    stage_.end();
    return logits_;
  }

 private:
  Ctx& ctx_;
  DecodeStage stage_;
  Communicator* pp_ = nullptr;  // of several stages
  std::optional<PipelineExecutor> executor_;
  std::vector<float> logits_;
};

}  // namespace

int64_t positions_of(const ModelConfig& config, std::span<const int32_t> prompt,
                     const GenerateOptions& options) {
  const int64_t used = std::min<int64_t>(config.max_positions, std::ssize(prompt));
  return used + std::min(config.max_positions - used, options.max_new_tokens);
}

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
  const int64_t positions = positions_of(config, prompt, options);
  const int64_t limit = positions - std::ssize(prompt);
  const Mode before = std::exchange(ctx.mode, Mode::kInfer);
  Decoder decoder(model, params, ctx, options.groups, positions);
  Sampler sampler(options.sampling);
  Generation out;
  out.reason = limit < options.max_new_tokens ? StopReason::kContextFull : StopReason::kLength;
  std::span<const float> logits = decoder.run(prompt);
  for (int64_t n = 0; n < limit; ++n) {
    const SampledToken token =
        sampler.sample(logits.first(static_cast<size_t>(choices)), std::ssize(prompt) + n);
    if (token.id == options.stop_token) {
      out.reason = StopReason::kStopToken;
      break;
    }
    out.tokens.push_back(token.id);
    out.logprobs.push_back(token.logprob);
    if (on_token && !on_token(token.id)) break;
    if (n + 1 < limit) logits = decoder.run({&out.tokens.back(), 1});
  }
  ctx.mode = before;
  return out;
}

}  // namespace trireme
