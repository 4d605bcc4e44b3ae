#include "serving/engine/generate.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "engine/device/graph.h"
#include "serving/engine/decode_stage.h"

namespace trireme {
namespace {

// Chooses token after token, for all ranks of the model on one of them, the first tensor-parallel rank of the
// last stage: exp() may differ in the last bit between CPUs, and ranks that chose for themselves could part.
class Decoder {
 public:
  Decoder(const Model& model, ParameterStore& params, Ctx& ctx, int64_t max_tokens,
          int64_t most_new, const GenerateOptions& options)
      : ctx_(ctx),
        groups_(options.groups),
        stage_(model, params, ctx, groups_, max_tokens, most_new,
               options.paged || ctx.gpu != nullptr),
        records_(can_record(model)),
        choices_(static_cast<size_t>(options.vocab_size > 0 ? options.vocab_size
                                                            : model.config().vocab_size)),
        sampler_(options.sampling) {
    TRIREME_CHECK(std::cmp_less_equal(choices_, model.config().vocab_size), choices_, " ids of ",
                  model.config().vocab_size);
    if (groups_ != nullptr && groups_->pp->size() > 1)
      executor_.emplace(make_schedule(ScheduleKind::kForwardOnly, groups_->pp->size(), 1, 1),
                        *groups_->pp);
  }

  // The token that follows `ids`, which follow those of earlier calls; the same on every rank.
  SampledToken next(std::span<const int32_t> ids) {
    stage_.begin(ids);
    if (std::ssize(ids) == 1 && records_)
      recorded_pass();
    else
      planned_pass(std::ssize(ids));
    stage_.end();
    position_ += std::ssize(ids);
    return groups_ == nullptr ? sample() : sample_for_all(groups_->layout.tp, groups_->layout.pp);
  }

 private:
  // Whether the pass over one token is the same queued work every time. The host reads how many tokens each
  // expert gets, takes part in what ranks send each other, and looks on where somebody observes.
  bool can_record(const Model& model) const {
    const bool alone = groups_ == nullptr || groups_->layout.tp.size * groups_->layout.pp.size == 1;
    return ctx_.gpu != nullptr && !ctx_.gpu->synchronous && alone && !ctx_.observer &&
           model.config().moe.experts == 0;
  }

  // The first time as it is, so that libraries make their choices; then recorded; then the record alone,
  // for which the host works as long for a model of a hundred layers as for one of two.
  void recorded_pass() {
    if (!warm_) {
      planned_pass(1);
      warm_ = true;
      return;
    }
    if (!graph_.present()) graph_ = cuda::capture(*ctx_.gpu, [this] { planned_pass(1); });
    cuda::replay(*ctx_.gpu, graph_);
  }

  void planned_pass(int64_t count) {
    const ArenaPlan& plan = plan_for(count);
    ctx_.arena.begin_step(plan);
    try {
      pass();
    } catch (...) {
      ctx_.arena.abandon_step();
      throw;
    }
    ctx_.arena.end_step();
  }

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
    const SampledToken token = sampler_.sample(stage_.logits().first(choices_), position_);
    // After the loss of a rank a GPU goes on with anything for what it should have sent.
    if (groups_ != nullptr && ctx_.gpu != nullptr) groups_->world.check_alive();
    return token;
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
  bool records_;                              // passes over one token
  bool warm_ = false;                         // one of them has been
  cuda::Graph graph_;                         // its work, in the arena's memory as planned
  size_t choices_;                            // ids that may be chosen
  Sampler sampler_;
  int64_t position_ = 0;  // of the token that comes next
};

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
  const int64_t limit = positions - std::ssize(prompt);
  const Mode before = std::exchange(ctx.mode, Mode::kInfer);
  Decoder decoder(model, params, ctx, positions, std::ssize(prompt), options);
  Generation out;
  out.reason = limit < options.max_new_tokens ? StopReason::kContextFull : StopReason::kLength;
  std::span<const int32_t> ids = prompt;
  for (int64_t n = 0; n < limit; ++n) {
    const SampledToken token = decoder.next(ids);
    if (std::ranges::find(options.stop_tokens, token.id) != options.stop_tokens.end()) {
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
