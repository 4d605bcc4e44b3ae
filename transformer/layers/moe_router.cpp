#include "transformer/layers/moe_router.h"

#include <algorithm>

#include "engine/ops/gemm/gemm.h"
#include "engine/ops/moe/expert_rows.h"
#include "engine/ops/moe/router_noise.h"
#include "engine/ops/moe/token_marks.h"
#include "engine/ops/rows/activation.h"
#include "engine/ops/rows/elementwise.h"
#include "engine/ops/rows/transfer.h"
#include "transformer/families/family.h"

namespace trireme {
namespace {

void sum_over(Communicator& group, const Tensor& data) {
  if (group.size() > 1) group.all_reduce(data);
}

// Global rows of the tokens of this share; -1 marks padding.
ConstTensor rows_of(const Pass& pass, const TokenShare& share) {
  return pass.tokens.global_index.slice(0, share.begin, share.begin + share.count);
}

}  // namespace

TokenShare token_share(const Pass& pass) {
  const int64_t tokens = pass.tokens.count;
  if (pass.groups == nullptr || pass.groups->layout.tp.size == 1) return {0, tokens, tokens, false};
  const Layout& layout = pass.groups->layout;
  TokenShare share;
  share.chunk = ceil_div(tokens, layout.tp.size);
  share.begin = std::min(tokens, share.chunk * layout.tp.index);
  share.count = std::min(share.chunk, tokens - share.begin);
  share.split = !layout.sequence_parallel;
  return share;
}

MoeRouter::MoeRouter(const ModelConfig& config, const Layout& layout, ParameterList& list,
                     const std::string& prefix, int block, int layer)
    : moe_(config.moe), layer_(layer) {
  const std::string router = concat(prefix, ".", parameter_names(config).router);
  const auto matrix = [&](const char* name, InitKind init) {
    return list.add({.name = router + name,
                     .shape = Shape{moe_.experts, config.hidden_size},
                     .init = init,
                     .init_std = config.initializer_range,
                     .decay = true,
                     .block = block,
                     .partial = layout.tp.size > 1 ? PartialSum::kTensor : PartialSum::kNone,
                     .copies = layout.tp.size,
                     .copy = layout.tp.index});
  };
  weight_ = matrix(".weight", InitKind::kNormal);
  if (moe_.router_bias)
    bias_ = list.add({.name = router + ".bias",
                      .shape = Shape{moe_.experts},
                      .block = block,
                      .partial = layout.tp.size > 1 ? PartialSum::kTensor : PartialSum::kNone,
                      .copies = layout.tp.size,
                      .copy = layout.tp.index});
  // Noise starts with the same scale for all experts: zero weights (Shazeer et al. 2017, appendix
  // A).
  if (moe_.noisy) noise_ = matrix("_noise.weight", InitKind::kZeros);
}

RouterArgs MoeRouter::args() const {
  return {.score = moe_.sigmoid_scores ? RouterScore::kSigmoid : RouterScore::kSoftmax,
          .normalize = moe_.normalize_weights,
          .scale = moe_.weight_scale,
          .groups = moe_.groups,
          .kept_groups = moe_.kept_groups,
          .choose_by_logits = moe_.choose_by_logits};
}

// Upper bound of the sequences in the micro-batch; context-parallel ranks hold parts of all of
// them.
int64_t MoeRouter::segments(const Pass& pass) const {
  const int64_t length = pass.tokens.sequence_length;
  if (moe_.balance_scope != BalanceScope::kSequence || length == 0) return 1;
  const int64_t cp = pass.groups == nullptr ? 1 : pass.groups->layout.cp.size;
  return std::max<int64_t>(1, pass.tokens.count * cp / length);
}

void MoeRouter::mark_tokens(Pass& pass, const TokenShare& share, Saved& saved) const {
  Ctx& ctx = pass.ctx;
  saved.valid = ctx.allocate("router.valid", DType::kU8, {share.count});
  saved.segments = ctx.allocate("router.segments", DType::kI32, {share.count});
  // In inference there are no rows: every token counts.
  trireme::mark_tokens(ctx, saved.valid, saved.segments, pass.tokens.global_index, share.begin,
                       segments(pass) > 1 ? pass.tokens.sequence_length : 0);
}

void MoeRouter::forward(Pass& pass, const Tensor& kept, const ConstTensor& x,
                        const TokenShare& share, Saved& saved) const {
  Ctx& ctx = pass.ctx;
  const DType wide = sum_dtype(x.dtype());
  const Shape shape{share.count, moe_.experts}, chosen{share.count, moe_.experts_per_token};
  const auto product = [&](const char* name, ParamHandle w, const ConstTensor& bias) {
    Activation out = ctx.allocate(name, wide, shape);
    linear_forward(ctx, out, x, pass.params.value(w), bias);
    return out;
  };
  mark_tokens(pass, share, saved);
  Activation bias;  // in the dtype of the logits
  if (bias_ >= 0) {
    bias = ctx.allocate("router.logit_bias", wide, {moe_.experts});
    cast(ctx, bias, pass.params.value(bias_));
  }
  saved.logits =
      product("router.logits", weight_, bias.present() ? ConstTensor(*bias) : ConstTensor());
  if (noisy(pass)) {
    saved.clean = std::move(saved.logits);
    saved.raw = product("router.raw_noise", noise_, {});
    saved.noise = ctx.allocate("router.noise", wide, shape);
    saved.logits = ctx.allocate("router.noisy", wide, shape);
    noisy_logits(ctx, saved.logits, saved.noise, saved.clean, saved.raw, rows_of(pass, share),
                 pass.dropout_key("router_noise", layer_));
  }
  saved.scores = ctx.allocate("router.scores", wide, shape);
  saved.experts = ctx.allocate("router.experts", DType::kI32, chosen);
  saved.weights = ctx.allocate("router.weights", wide, chosen);
  const ConstTensor selection_bias =
      pass.routers != nullptr ? pass.routers->bias(layer_) : Tensor();
  router_forward(ctx, saved.scores, saved.experts, saved.weights, saved.logits, selection_bias,
                 saved.valid, args());
  if (selection_bias.present()) ctx.tap("router.bias", selection_bias);
  ctx.tap("router.scores", saved.scores);
  transfer(ctx, kept, saved.experts);
  if (moe_.capacity_factor > 0 && ctx.mode == Mode::kTrain) drop(pass, kept, share);
}

// Every rank gathers all choices of the micro-batch: k numbers per token, little compared to the
// token itself.
void MoeRouter::drop(Pass& pass, const Tensor& kept, const TokenShare& share) const {
  Ctx& ctx = pass.ctx;
  const int64_t k = moe_.experts_per_token, n = share.chunk;
  const bool alone = pass.groups == nullptr;
  const int tp = alone ? 1 : pass.groups->layout.tp.size,
            cp = alone ? 1 : pass.groups->layout.cp.size;
  const int tp_index = alone ? 0 : pass.groups->layout.tp.index;
  const int cp_index = alone ? 0 : pass.groups->layout.cp.index;
  const Activation rows = ctx.allocate("router.all_rows", DType::kI64, {cp, tp, n});
  const Activation experts = ctx.allocate("router.all_experts", DType::kI32, {cp, tp, n, k});
  const Activation dropped = ctx.allocate("router.dropped", DType::kI64, {1});
  const int64_t all = int64_t{cp} * tp * n;
  const int64_t first = (int64_t{cp_index} * tp + tp_index) * n;
  const Tensor flat_rows = rows->reshape({all}), flat = experts->reshape({all * k});
  const Tensor my_rows = flat_rows.slice(0, first, first + n);
  const Tensor mine = flat.slice(0, first * k, (first + n) * k);
  fill_bytes(ctx, my_rows, 0xff);  // -1: padding beyond share.count
  fill_bytes(ctx, mine, 0xff);
  transfer(ctx, my_rows.slice(0, 0, share.count), rows_of(pass, share));
  transfer(ctx, mine.slice(0, 0, share.count * k), kept.reshape({share.count * k}));
  if (!ctx.planning()) {
    const TimeScope scope(ctx.profile, TimeCategory::kCommunication);
    const int64_t begin = int64_t{cp_index} * tp * n, end = begin + tp * n;
    if (tp > 1) {
      pass.groups->tp->all_gather(flat_rows.slice(0, begin, end), my_rows);
      pass.groups->tp->all_gather(flat.slice(0, begin * k, end * k), mine);
    }
    if (cp > 1) {
      pass.groups->cp->all_gather(flat_rows, flat_rows.slice(0, begin, end));
      pass.groups->cp->all_gather(flat, flat.slice(0, begin * k, end * k));
    }
  }
  // The host computes the capacity: on a GPU this synchronizes, once per sparse layer.
  int64_t valid = 0;
  if (!ctx.planning()) {
    const std::vector<int64_t> all_rows = to_host<int64_t>(ctx, flat_rows);
    if (ctx.gpu != nullptr && pass.groups != nullptr) pass.groups->world.check_alive();
    valid = std::ranges::count_if(all_rows, [](int64_t row) { return row >= 0; });
  }
  drop_over_capacity(ctx, kept, dropped, experts->reshape({all, k}), rows->reshape({all}), first,
                     moe_.experts, expert_capacity(moe_.capacity_factor, valid, k, moe_.experts));
}

MoeRouter::Losses MoeRouter::losses(Pass& pass, const TokenShare& share, const Saved& saved) const {
  Ctx& ctx = pass.ctx;
  const int64_t s = segments(pass), e = moe_.experts;
  const Activation flat = ctx.allocate("router.sums", DType::kF64, {RouterSums::size(s, e)});
  const RouterSums sums(flat, s, e);
  const ConstTensor targets = pass.tokens.targets.slice(0, share.begin, share.begin + share.count);
  router_statistics(ctx, sums, saved.scores, saved.logits, saved.experts, saved.weights,
                    {*saved.segments, targets});
  if (noisy(pass))
    noisy_load(ctx, sums.load, saved.logits, saved.clean, saved.raw, saved.valid,
               moe_.experts_per_token);
  if (pass.groups != nullptr && !ctx.planning()) {
    const TimeScope scope(ctx.profile, TimeCategory::kCommunication);
    sum_over(*pass.groups->tp, flat);
    sum_over(*pass.groups->cp, flat);
  }
  Losses out;
  out.flat = ctx.allocate("router.loss_gradients", DType::kF64, {(s + 2) * e + 1});
  out.d_probability = out.flat->slice(0, 0, s * e).reshape({s, e});
  out.d_importance = out.flat->slice(0, s * e, (s + 1) * e);
  out.d_load = out.flat->slice(0, (s + 1) * e, (s + 2) * e);
  out.d_z = out.flat->slice(0, (s + 2) * e, (s + 2) * e + 1);
  // All ranks of a micro-batch know its losses; only those with context index 0 count them.
  const bool counts = pass.groups == nullptr || pass.groups->layout.cp.index == 0;
  const Activation elsewhere = ctx.allocate("router.not_counted", DType::kF64, {4});
  fill_zero(ctx, elsewhere);
  RouterLossArgs args{moe_.experts_per_token, moe_.balance_coef, moe_.z_coef, moe_.importance_coef,
                      moe_.load_coef};
  if (moe_.balance_scope == BalanceScope::kGlobal) {
    TRIREME_CHECK(pass.routers != nullptr, "the balancing loss has no shares of the last step");
    args.shares = pass.routers->shares(layer_);
  }
  router_losses(ctx, counts ? pass.router_losses : *elsewhere,
                {out.d_probability, out.d_importance, out.d_load, out.d_z}, sums, pass.loss_scale,
                args);
  if (pass.routers != nullptr && !ctx.planning()) pass.routers->count(ctx, layer_, sums.counts);
  return out;
}

MoeRouter::Deferred MoeRouter::backward_input(Pass& pass, const Tensor& dx,
                                              const ConstTensor& d_weights, const TokenShare& share,
                                              const Saved& saved) const {
  Ctx& ctx = pass.ctx;
  const Shape shape = saved.logits->shape();
  const DType wide = saved.logits->dtype();
  Activation d = ctx.allocate("router.d_logits", wide, shape), d_raw;
  RouterLossGradients gradients;
  Losses loss;
  if (pass.loss_scale.present()) {
    loss = losses(pass, share, saved);
    gradients = {loss.d_probability, *saved.segments, loss.d_importance, loss.d_z};
  }
  router_backward(ctx, d, d_weights, saved.scores, saved.logits, saved.experts, gradients, args());
  if (noisy(pass)) {
    d_raw = ctx.allocate("router.d_raw_noise", wide, shape);
    Activation none;
    if (!loss.flat.present()) {
      none = ctx.allocate("router.no_load", DType::kF64, {moe_.experts});
      fill_zero(ctx, none);
    }
    noisy_backward(ctx, d, d_raw, saved.noise, saved.logits, saved.clean, saved.raw,
                   loss.flat.present() ? loss.d_load : *none, saved.valid, moe_.experts_per_token);
  }
  const auto add_input = [&](Activation wide_gradient, ParamHandle w) {
    if (dx.dtype() != wide) {
      Activation narrow = ctx.allocate("router.d_narrow", dx.dtype(), shape);
      cast(ctx, narrow, wide_gradient);
      wide_gradient = std::move(narrow);
    }
    linear_backward_input(ctx, dx, wide_gradient, pass.params.value(w), true);
    return wide_gradient;
  };
  Deferred deferred;
  deferred.d_logits = add_input(std::move(d), weight_);
  if (noisy(pass)) deferred.d_raw = add_input(std::move(d_raw), noise_);
  return deferred;
}

void MoeRouter::backward_weight(Pass& pass, const ConstTensor& x, const Deferred& deferred) const {
  if (!pass.params.trained(weight_)) return;
  const auto product = [&](ParamHandle w, const ConstTensor& d) {
    const GradientSlot dw = pass.params.gradient(w);
    linear_backward_weight(pass.ctx, dw.grad, d, x, dw.accumulate);
  };
  product(weight_, deferred.d_logits);
  if (bias_ >= 0) {
    const GradientSlot db = pass.params.gradient(bias_);
    bias_backward(pass.ctx, db.grad, deferred.d_logits, db.accumulate);
  }
  if (deferred.d_raw.present()) product(noise_, deferred.d_raw);
}

}  // namespace trireme
