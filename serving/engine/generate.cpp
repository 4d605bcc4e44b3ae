#include "serving/engine/generate.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>

#include "engine/ops/transfer.h"
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
    ids_ = ids;
    tokens_.position_end = past + count;
    logits_ = logits;
  }
  void end() { cache_.advance(tokens_.count); }

  Activation forward(int chunk, int /*micro_batch*/, Activation x) override {
    const auto placed = [&](const char* name, auto numbers) {
      const ConstTensor host(numbers.data(), DType::kI32, Shape{std::ssize(numbers)});
      return Placed(ctx_, name, host);
    };
    const Placed ids = placed("decode.ids", ids_);
    const Placed positions = placed("decode.positions", std::span<const int32_t>(positions_));
    const Placed cu_q = placed("decode.cu_q", std::span<const int32_t>(cu_q_));
    const Placed cu_k = placed("decode.cu_k", std::span<const int32_t>(cu_k_));
    tokens_.ids = ids;
    tokens_.positions = positions;
    tokens_.cu_q = cu_q;
    tokens_.cu_k = cu_k;
    Pass pass{ctx_, params_, tokens_, groups_, &cache_};
    Activation y = model_.forward(pass, chunk, std::move(x), nullptr, Recompute::kNone);
    if (!model_.has_head(chunk)) return y;
    const Activation logits = ctx_.allocate("decode.logits", DType::kF32, logits_.shape());
    model_.logits(pass, std::move(y), logits);
    transfer(ctx_, logits_, logits);
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
            config.head_dim, params_.dtype(), layers.first_layer,
            ctx_.memory()};
  }

  const Model& model_;
  ParameterStore& params_;
  Ctx& ctx_;
  const Groups* groups_;
  ContiguousKvCache cache_;
  std::span<const int32_t> ids_;
  std::vector<int32_t> positions_;
  std::array<int32_t, 2> cu_q_{}, cu_k_{};
  Tokens tokens_;
  Tensor logits_;
};

// Chooses token after token, for all ranks of the model on one of them, the first tensor-parallel rank of the
// last stage: exp() may differ in the last bit between CPUs, and ranks that chose for themselves could part.
class Decoder {
 public:
  Decoder(const Model& model, ParameterStore& params, Ctx& ctx, int64_t max_tokens,
          const GenerateOptions& options)
      : ctx_(ctx),
        groups_(options.groups),
        stage_(model, params, ctx, groups_, max_tokens),
        logits_(static_cast<size_t>(model.config().vocab_size)),
        choices_(options.vocab_size > 0 ? static_cast<size_t>(options.vocab_size) : logits_.size()),
        sampler_(options.sampling) {
    TRIREME_CHECK(choices_ <= logits_.size(), choices_, " ids of ", logits_.size());
    if (groups_ != nullptr && groups_->pp->size() > 1)
      executor_.emplace(make_schedule(ScheduleKind::kForwardOnly, groups_->pp->size(), 1, 1),
                        *groups_->pp);
  }

  // The token that follows `ids`, which follow those of earlier calls; the same on every rank.
  SampledToken next(std::span<const int32_t> ids) {
    stage_.begin(ids, Tensor(logits_.data(), DType::kF32, Shape{1, std::ssize(logits_)}));
    const ArenaPlan& plan = plan_for(std::ssize(ids));
    ctx_.arena.begin_step(plan);
    try {
      pass();
    } catch (...) {
      ctx_.arena.abandon_step();
      throw;
    }
    ctx_.arena.end_step();
    stage_.end();
    position_ += std::ssize(ids);
    return groups_ == nullptr ? sample() : sample_for_all(groups_->layout.tp, groups_->layout.pp);
  }

 private:
  void pass() {
    if (executor_)
      executor_->run(stage_, ctx_);
    else
      stage_.forward(0, 0, {});
  }

  // Memory of a pass over `count` tokens: the prompt's once, then always that of one token.
  const ArenaPlan& plan_for(int64_t count) {
    const auto [at, fresh] = plans_.try_emplace(count);
    if (!fresh) return at->second;
    ctx_.arena.begin_planning();
    pass();
    at->second = ctx_.arena.end_planning();
    ctx_.arena.reserve(at->second.capacity);
    return at->second;
  }

  SampledToken sample() {
    return sampler_.sample(std::span<const float>(logits_).first(choices_), position_);
  }

  SampledToken sample_for_all(const Place& tp, const Place& pp) {
    const int last = pp.size - 1;
    SampledToken token;
    if (pp.index == last && tp.index == 0) token = sample();
    std::array<double, 2> message{static_cast<double>(token.id), token.logprob};
    const Tensor view(message.data(), DType::kF64, Shape{2});
    if (pp.index == last && tp.size > 1) groups_->tp->broadcast(view, 0);
    if (pp.size > 1) groups_->pp->broadcast(view, last);
    return {static_cast<int32_t>(message[0]), message[1]};
  }

  Ctx& ctx_;
  const Groups* groups_;
  DecodeStage stage_;
  std::optional<PipelineExecutor> executor_;  // of several stages
  std::map<int64_t, ArenaPlan> plans_;        // by the number of new tokens
  std::vector<float> logits_;                 // (V) where the head is
  size_t choices_;                            // ids that may be chosen
  Sampler sampler_;
  int64_t position_ = 0;  // of the token that comes next
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
  const int64_t positions = positions_of(config, prompt, options);
  const int64_t limit = positions - std::ssize(prompt);
  const Mode before = std::exchange(ctx.mode, Mode::kInfer);
  Decoder decoder(model, params, ctx, positions, options);
  Generation out;
  out.reason = limit < options.max_new_tokens ? StopReason::kContextFull : StopReason::kLength;
  std::span<const int32_t> ids = prompt;
  for (int64_t n = 0; n < limit; ++n) {
    const SampledToken token = decoder.next(ids);
    if (token.id == options.stop_token) {
      out.reason = StopReason::kStopToken;
      break;
    }
    out.tokens.push_back(token.id);
    out.logprobs.push_back(token.logprob);
    if (on_token && !on_token(token.id)) break;
    ids = {&out.tokens.back(), 1};
  }
  ctx.mode = before;
  return out;
}

}  // namespace trireme
