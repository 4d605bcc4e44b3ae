#include "transformer/layers/moe.h"

#include <cmath>

#include "engine/ops/moe/expert_rows.h"
#include "engine/ops/quantized/quantized_weight.h"
#include "engine/ops/rows/elementwise.h"
#include "engine/ops/rows/transfer.h"
#include "parallel/comm/collectives/collectives.h"
#include "transformer/families/family.h"

namespace trireme {
namespace {

// Name of the module with the experts in layer `layer`.
std::string module_name(const ModelConfig& config, const std::string& layer) {
  return concat(layer, ".", parameter_names(config).experts);
}

ModelConfig shared_config(ModelConfig config) {
  config.intermediate_size = config.moe.shared_intermediate_size;
  return config;
}

// The shared expert's factor is computed as a router of one expert whose weight is its score.
constexpr RouterArgs kGateArgs{.score = RouterScore::kSigmoid, .normalize = false};

// Rows in use of a buffer; in a planning run, where the number is unknown, all rows.
int64_t used(const Pass& pass, const ExpertRound& round, const ConstTensor& buffer) {
  return pass.ctx.planning() ? buffer.size(0) : round.rows();
}

// Places of pairs in use; in a planning run, where their number is unknown, all.
Tensor used_pairs(const Ctx& ctx, const Tensor& places, const ExpertRoute& route) {
  return ctx.planning() ? places : places.slice(0, 0, route.pairs);
}

// Skips the arena regions of experts_backward_weight() where backward_input() has done its work.
void skip_planned_products(Ctx& ctx, bool biases) {
  for (int products = 0; products < 2; ++products)
    const Arena::Region unused(ctx.arena, "grouped_gemm");
  for (int sums = 0; sums < 2 && biases; ++sums)
    const Arena::Region unused(ctx.arena, "grouped_bias");
}

}  // namespace

Moe::Moe(const ModelConfig& config, const Layout& layout, ParameterList& list,
         const std::string& prefix, int block, int layer)
    : moe_(config.moe),
      unit_(config),
      layout_(layout),
      width_(config.hidden_size),
      router_(config, layout, list, module_name(config, prefix), block, layer) {
  const ParameterNames& names = parameter_names(config);
  const std::string module = module_name(config, prefix);
  const DimSlice inner = even_slice(moe_.intermediate_size, layout.etp);
  inner_ = inner.size();
  const double std = config.initializer_range;
  const double residual_std = std / std::sqrt(2.0 * static_cast<double>(config.num_layers));
  const Piece held = piece_of(moe_.experts, layout.ep.size, layout.ep.index);
  for (int64_t e = held.begin; e < held.end; ++e) {
    const auto matrix = [&](const std::string& name, const DimSlice& rows, const DimSlice& columns,
                            const Shape& shape, double init_std, bool fused) {
      return list.add({.name = concat(module, ".experts.", e, ".", name, ".weight"),
                       .shape = shape,
                       .box = box_of(rows, columns),
                       .init = InitKind::kNormal,
                       .init_std = init_std,
                       .decay = true,
                       .block = block,
                       .fused_with_previous = fused,
                       .region = Region::kExpert,
                       .linear = true});
    };
    const Shape wide{moe_.intermediate_size, width_}, narrow{width_, moe_.intermediate_size};
    Expert expert;
    expert.gate = matrix(names.expert_gate, inner, whole_slice(width_), wide, std, false);
    expert.up = matrix(names.expert_up, inner, whole_slice(width_), wide, std, true);
    expert.down =
        matrix(names.expert_down, whole_slice(width_), inner, narrow, residual_std, false);
    if (moe_.expert_bias)
      add_biases(list, names, concat(module, ".experts.", e), inner, block, expert);
    experts_.push_back(expert);
  }
  if (moe_.shared_intermediate_size == 0) return;
  const std::string shared = concat(module, ".", names.shared_expert);
  shared_ = std::make_unique<Mlp>(shared_config(config), layout, list, shared, block);
  if (!moe_.shared_gate) return;
  const DimSlice replicated = replicated_slice(width_, layout);
  shared_gate_ = list.add({.name = concat(shared, "_gate.weight"),
                           .shape = Shape{1, width_},
                           .init = InitKind::kNormal,
                           .init_std = std,
                           .decay = true,
                           .block = block,
                           .partial = replicated.partial,
                           .copies = replicated.copies,
                           .copy = replicated.copy});
}

void Moe::add_biases(ParameterList& list, const ParameterNames& names, const std::string& name,
                     const DimSlice& inner, int block, Expert& expert) const {
  const auto bias = [&](const char* part, int64_t size, const DimSlice& rows, bool fused) {
    return list.add({.name = concat(name, ".", part, ".bias"),
                     .shape = Shape{size},
                     .box = box_of(rows),
                     .block = block,
                     .fused_with_previous = fused,
                     .region = Region::kExpert,
                     .copies = rows.copies,
                     .copy = rows.copy});
  };
  // Every rank of etp has all outputs of the last product: its rows' gradients are the same there.
  DimSlice outputs = whole_slice(width_);
  outputs.copies = layout_.etp.size;
  outputs.copy = layout_.etp.index;
  expert.gate_bias = bias(names.expert_gate, moe_.intermediate_size, inner, false);
  expert.up_bias = bias(names.expert_up, moe_.intermediate_size, inner, true);
  expert.down_bias = bias(names.expert_down, width_, outputs, false);
}

TokenDispatcher Moe::token_dispatcher(const Pass& pass) const {
  if (pass.groups != nullptr) return {pass.groups->ep.get(), pass.groups->etp.get(), moe_.experts};
  TRIREME_CHECK(layout_.ep.size * layout_.etp.size == 1, "experts on ", layout_.ep.size, " x ",
                layout_.etp.size, " ranks need the groups of the ranks");
  return {nullptr, nullptr, moe_.experts};
}

int64_t Moe::bound(const Pass& pass, const TokenShare& share) const {
  return bound_ > 0 ? bound_
                    : token_dispatcher(pass).default_bound(share.chunk, moe_.experts_per_token);
}

Moe::Weights Moe::weights(Pass& pass, ParamHandle Expert::*first, ParamHandle Expert::*last) const {
  Weights out;
  out.each.reserve(experts_.size());
  const ParamHandle any = experts_.front().*first;
  if (!pass.params.packed(any)) {
    for (const Expert& e : experts_) out.each.push_back(pass.params.value(e.*first, e.*last));
    return out;
  }
  const Shape shape = pass.params.shape(any, experts_.front().*last);
  const int64_t n = std::ssize(experts_);
  out.unpacked = pass.ctx.allocate("moe.unpacked", pass.params.dtype(), {n, shape[0], shape[1]});
  for (int64_t i = 0; i < n; ++i) {
    const Expert& e = experts_[static_cast<size_t>(i)];
    out.each.push_back(out.unpacked->slice(0, i, i + 1).reshape(shape));
    pass.params.unpack(pass.ctx, e.*first, e.*last, out.each.back());
  }
  return out;
}

Moe::Weights Moe::first_weights(Pass& pass) const {
  return weights(pass, &Expert::gate, &Expert::up);
}

Moe::Weights Moe::second_weights(Pass& pass) const {
  return weights(pass, &Expert::down, &Expert::down);
}

void Moe::multiply(Pass& pass, const Tensor& y, const ConstTensor& x, ParamHandle Expert::*first,
                   ParamHandle Expert::*last, std::span<const int64_t> offsets) const {
  if (!pass.params.in_blocks(experts_.front().*first))
    return grouped_linear_forward(pass.ctx, y, x, weights(pass, first, last).each, offsets);
  const TimeScope timed(pass.ctx.profile, TimeCategory::kGemm);
  const QuantizedRows rows = quantize_rows(pass.ctx, x, offsets.empty() ? 0 : offsets.back());
  for (size_t e = 0; e + 1 < offsets.size(); ++e) {
    const int64_t begin = offsets[e], end = offsets[e + 1];
    if (begin == end) continue;
    block_product(pass.ctx, y.slice(0, begin, end), rows, begin,
                  pass.params.quantized_matrices(experts_[e].*first, experts_[e].*last), {});
  }
}

void Moe::multiply_first(Pass& pass, const Tensor& inner, const ConstTensor& x,
                         std::span<const int64_t> offsets) const {
  multiply(pass, inner, x, &Expert::gate, &Expert::up, offsets);
  if (!moe_.expert_bias) return;
  std::vector<Tensor> biases;
  biases.reserve(experts_.size());
  for (const Expert& e : experts_) biases.push_back(pass.params.value(e.gate_bias, e.up_bias));
  grouped_bias_forward(pass.ctx, inner, biases, offsets);
}

void Moe::multiply_second(Pass& pass, const Tensor& out, const ConstTensor& act,
                          std::span<const int64_t> offsets) const {
  multiply(pass, out, act, &Expert::down, &Expert::down, offsets);
  if (!moe_.expert_bias || layout_.etp.index > 0) return;  // the sum over etp has the bias once
  std::vector<Tensor> biases;
  biases.reserve(experts_.size());
  for (const Expert& e : experts_) biases.push_back(pass.params.value(e.down_bias));
  grouped_bias_forward(pass.ctx, out, biases, offsets);
}

// Routes the tokens: choice of experts, order of the pairs, dispatch plan.
void Moe::choose(Pass& pass, const ConstTensor& x, const TokenShare& share, Saved& saved) const {
  Ctx& ctx = pass.ctx;
  const int64_t k = moe_.experts_per_token, n = share.count;
  const Activation kept = ctx.allocate("moe.kept", DType::kI32, {n, k});
  router_.forward(pass, kept, x, share, saved.router);
  saved.pairs = ctx.allocate("moe.pairs", DType::kI32, {n * k});
  saved.places = ctx.allocate("moe.places", DType::kI32, {n, k});
  const Activation counts = ctx.allocate("moe.counts", DType::kI64, {moe_.experts});
  order_by_expert(ctx, saved.pairs, saved.places, counts, kept);
  saved.route = token_dispatcher(pass).plan_dispatch(ctx, counts, bound(pass, share));
}

void Moe::activate(Pass& pass, const Saved& saved, int64_t rows) const {
  unit_.forward(pass.ctx, saved.act->slice(0, 0, rows), saved.inner->slice(0, 0, rows));
}

bool Moe::overlaps_shared(const Pass& pass) const {
  return shared_ != nullptr && overlaps(layout_.moe_shared_overlap, pass.ctx.gpu != nullptr);
}

// Tokens of the pairs, sorted by expert, times their weights where those multiply the inputs.
void Moe::gather_pairs(Pass& pass, const Tensor& out, const ConstTensor& x,
                       const Saved& saved) const {
  Ctx& ctx = pass.ctx;
  const Tensor rows = used_pairs(ctx, out, saved.route);
  const Tensor pairs = used_pairs(ctx, saved.pairs, saved.route);
  gather_rows(ctx, rows, x, pairs, moe_.experts_per_token);
  if (!moe_.scaled_inputs) return;
  const ConstTensor weights = saved.router.weights->reshape({out.size(0), 1});
  const Activation factors = ctx.allocate("moe.factors", weights.dtype(), weights.shape());
  const Tensor mine = used_pairs(ctx, factors, saved.route);
  gather_rows(ctx, mine, weights, pairs, 1);
  scale_rows(ctx, rows, rows, mine.reshape({rows.size(0)}), false);
}

// y = sum of the results of a token's experts, times their weights unless the inputs were.
void Moe::combine(Pass& pass, const Tensor& y, const Saved& saved) const {
  combine_rows(pass.ctx, y, saved.results, saved.places,
               moe_.scaled_inputs ? ConstTensor() : ConstTensor(*saved.router.weights));
}

// Fills saved.results. saved.rows, inner and act then hold those of the last round.
void Moe::run_experts(Pass& pass, const ConstTensor& x, Saved& saved,
                      const OverlappedWork& overlapped) const {
  Ctx& ctx = pass.ctx;
  const TokenDispatcher dispatcher = token_dispatcher(pass);
  const bool overlap = overlaps_shared(pass);
  const int64_t most = saved.rows->size(0);
  const size_t rounds = saved.route.rounds.size();
  const Activation send = ctx.allocate("moe.send", x.dtype(), saved.results->shape());
  gather_pairs(pass, send, x, saved);
  {
    const auto in_flight = dispatcher.post_dispatch(ctx, saved.rows, send, saved.route, 0, overlap);
    if (overlapped.dispatch) overlapped.dispatch();
    dispatcher.finish_dispatch(ctx, saved.rows, in_flight, saved.route, 0);
  }
  // Planned with one round: dispatches of later rounds need no more memory than its combine.
  const Arena::Region region(ctx.arena, "moe.experts");
  const Activation out = ctx.allocate("moe.out", x.dtype(), {most, width_});
  for (size_t r = 0; r < rounds; ++r) {
    const ExpertRound& round = saved.route.rounds[r];
    const bool last = r + 1 == rounds;
    if (r > 0) dispatcher.dispatch(ctx, saved.rows, send, saved.route, r);
    multiply_first(pass, saved.inner, saved.rows, round.offsets);
    activate(pass, saved, used(pass, round, saved.rows));
    multiply_second(pass, out, saved.act, round.offsets);
    const auto in_flight =
        dispatcher.post_combine(ctx, saved.results, out, saved.route, r, overlap && last);
    if (last && overlapped.combine) overlapped.combine();
    dispatcher.finish_combine(ctx, saved.results, in_flight, saved.route, r);
  }
}

// y from the parts of the tensor-parallel ranks, each of which computed its own tokens only.
void Moe::gather_parts(Pass& pass, const Tensor& y, const ConstTensor& part,
                       const TokenShare& share) const {
  Ctx& ctx = pass.ctx;
  const int64_t size = pass.groups->layout.tp.size;
  const Activation mine = ctx.allocate("moe.part", y.dtype(), {share.chunk, width_});
  const Activation all = ctx.allocate("moe.parts", y.dtype(), {size * share.chunk, width_});
  fill_zero(ctx, mine);
  transfer(ctx, mine->slice(0, 0, part.size(0)), part);
  if (!ctx.planning()) {
    const TimeScope scope(ctx.profile, TimeCategory::kCommunication);
    pass.groups->tp->all_gather(all, mine);
  }
  transfer(ctx, y, all->slice(0, 0, y.size(0)));
}

void Moe::forward(Pass& pass, const Tensor& y, const ConstTensor& x, Saved* saved,
                  bool keep_act) const {
  Ctx& ctx = pass.ctx;
  const TokenShare share = token_share(pass);
  const ConstTensor mine = share.split ? x.slice(0, share.begin, share.begin + share.count) : x;
  const int64_t most = bound(pass, share);
  Saved kept;
  choose(pass, mine, share, kept);
  kept.results =
      ctx.allocate("moe.results", x.dtype(), {share.count * moe_.experts_per_token, width_});
  kept.rows = ctx.allocate("moe.rows", x.dtype(), {most, width_});
  kept.inner = ctx.allocate("moe.inner", x.dtype(), {most, 2 * inner_});
  kept.act = ctx.allocate("moe.act", x.dtype(), {most, inner_});
  run_experts(pass, mine, kept, shared_forward(pass, x, kept));
  if (!keep_act) kept.act.reset();
  if (share.split) {
    const Activation part = ctx.allocate("moe.y", x.dtype(), {share.count, width_});
    combine(pass, part, kept);
    gather_parts(pass, y, part, share);
  } else {
    combine(pass, y, kept);
  }
  if (shared_) add_shared(pass, y, kept, keep_act);
  if (saved != nullptr) *saved = std::move(kept);
}

// Both halves of the shared expert and its factor; writes into `saved`.
Moe::OverlappedWork Moe::shared_forward(Pass& pass, const ConstTensor& x, Saved& saved) const {
  if (!shared_) return {};
  Ctx& ctx = pass.ctx;
  saved.shared_out = ctx.allocate("moe.shared", x.dtype(), x.shape());
  const auto first = [this, &pass, &ctx, &saved, x] {
    saved.shared = shared_->forward_first(pass, x);
    if (shared_gate_ < 0) return;
    const DType wide = sum_dtype(x.dtype());
    const Shape column{x.size(0), 1};
    saved.gate = ctx.allocate("moe.gate", wide, column);
    saved.gate_choice = ctx.allocate("moe.gate_choice", DType::kI32, column);
    const Activation logits = ctx.allocate("moe.gate_logits", wide, column);
    linear_forward(ctx, logits, x, pass.params.value(shared_gate_), {});
    router_forward(ctx, logits, saved.gate_choice, saved.gate, logits, {}, {}, kGateArgs);
  };
  return {first,
          [this, &pass, &saved] { shared_->forward_second(pass, saved.shared_out, saved.shared); }};
}

void Moe::add_shared(Pass& pass, const Tensor& y, Saved& saved, bool keep_act) const {
  if (!keep_act) saved.shared.act.reset();
  if (shared_gate_ >= 0)
    return scale_rows(pass.ctx, y, saved.shared_out, saved.gate->reshape({y.size(0)}), true);
  add(pass.ctx, y, y, saved.shared_out);
  saved.shared_out.reset();
}

void Moe::experts_backward_weight(Pass& pass, const Saved& saved, const Deferred& deferred,
                                  const ExpertRound& round) const {
  if (!pass.params.trained(experts_.front().gate)) return;
  std::vector<GroupedGradient> first, second;
  for (const Expert& e : experts_) {
    const GradientSlot wide = pass.params.gradient(e.gate, e.up);
    const GradientSlot down = pass.params.gradient(e.down);
    first.push_back({wide.grad, wide.accumulate});
    second.push_back({down.grad, down.accumulate});
  }
  grouped_linear_backward_weight(pass.ctx, second, deferred.d_rows, saved.act, round.offsets);
  grouped_linear_backward_weight(pass.ctx, first, deferred.d_inner, saved.rows, round.offsets);
  if (moe_.expert_bias) experts_backward_bias(pass, deferred, round);
}

void Moe::experts_backward_bias(Pass& pass, const Deferred& deferred,
                                const ExpertRound& round) const {
  std::vector<GroupedBiasGradient> first, second;
  for (const Expert& e : experts_) {
    const GradientSlot wide = pass.params.gradient(e.gate_bias, e.up_bias);
    const GradientSlot down = pass.params.gradient(e.down_bias);
    first.push_back({wide.grad, wide.accumulate});
    second.push_back({down.grad, down.accumulate});
  }
  grouped_bias_backward(pass.ctx, second, deferred.d_rows, round.offsets);
  grouped_bias_backward(pass.ctx, first, deferred.d_inner, round.offsets);
}

// Plans the products of a round that backward_weight() runs when there is only one round, so that
// the region is large enough for either place.
void Moe::plan_overflow(Pass& pass, const Saved& saved, const Deferred& deferred) const {
  const DType dtype = pass.params.gradient_dtype();
  const GroupedGradient first{Tensor(nullptr, dtype, {2 * inner_, width_})};
  const GroupedGradient second{Tensor(nullptr, dtype, {width_, inner_})};
  grouped_linear_forward(pass.ctx, deferred.d_inner, saved.rows, first_weights(pass).each, {});
  grouped_linear_backward_weight(pass.ctx, {&second, 1}, deferred.d_rows, saved.act, {});
  grouped_linear_backward_weight(pass.ctx, {&first, 1}, deferred.d_inner, saved.rows, {});
  if (!moe_.expert_bias) return;
  const DType sums = sum_dtype(saved.rows->dtype());
  const GroupedBiasGradient wide{Tensor(nullptr, sums, {2 * inner_})};
  const GroupedBiasGradient narrow{Tensor(nullptr, sums, {width_})};
  grouped_bias_backward(pass.ctx, {&narrow, 1}, deferred.d_rows, {});
  grouped_bias_backward(pass.ctx, {&wide, 1}, deferred.d_inner, {});
}

// d_pairs (n k, C): on entry the gradient of the results, on return the gradient of the pairs'
// tokens. With several rounds each round first recomputes the experts' inputs and activations.
void Moe::experts_backward(Pass& pass, const Tensor& d_pairs, const ConstTensor& x, Saved& saved,
                           const Deferred& deferred, const OverlappedWork& overlapped) const {
  Ctx& ctx = pass.ctx;
  const TokenDispatcher dispatcher = token_dispatcher(pass);
  const bool overlap = overlaps_shared(pass);
  const int64_t most = deferred.d_rows->size(0);
  const size_t rounds = saved.route.rounds.size();
  const bool again = rounds > 1;
  pass.params.expect_gradients(experts_.front().gate);
  {
    const auto in_flight =
        dispatcher.post_dispatch(ctx, deferred.d_rows, d_pairs, saved.route, 0, overlap);
    if (overlapped.dispatch) overlapped.dispatch();
    dispatcher.finish_dispatch(ctx, deferred.d_rows, in_flight, saved.route, 0);
  }
  const Arena::Region region(ctx.arena, "moe.experts_backward");
  const Activation send = ctx.allocate("moe.send", x.dtype(), d_pairs.shape());
  const Activation d_act = ctx.allocate("moe.d_act", x.dtype(), {most, inner_});
  const Activation d_out = ctx.allocate("moe.d_out", x.dtype(), {most, width_});
  if (ctx.planning()) plan_overflow(pass, saved, deferred);
  if (again || ctx.planning()) gather_pairs(pass, send, x, saved);
  for (size_t r = 0; r < rounds; ++r) {
    const ExpertRound& round = saved.route.rounds[r];
    const bool last = r + 1 == rounds;
    const int64_t rows = used(pass, round, d_act);
    const Tensor d_inner = deferred.d_inner->slice(0, 0, rows);
    if (again) {
      dispatcher.dispatch(ctx, saved.rows, send, saved.route, r);
      multiply_first(pass, deferred.d_inner, saved.rows, round.offsets);
      unit_.forward(ctx, saved.act->slice(0, 0, rows), d_inner);
    }
    if (r > 0) dispatcher.dispatch(ctx, deferred.d_rows, d_pairs, saved.route, r);
    grouped_linear_backward_input(ctx, d_act, deferred.d_rows, second_weights(pass).each,
                                  round.offsets);
    // The gradient overwrites the pre-activation, which is no longer needed.
    unit_.backward(ctx, d_inner, d_act->slice(0, 0, rows), d_inner);
    grouped_linear_backward_input(ctx, d_out, deferred.d_inner, first_weights(pass).each,
                                  round.offsets);
    if (again) experts_backward_weight(pass, saved, deferred, round);
    const auto in_flight =
        dispatcher.post_combine(ctx, d_pairs, d_out, saved.route, r, overlap && last);
    if (last && overlapped.combine) overlapped.combine();
    dispatcher.finish_combine(ctx, d_pairs, in_flight, saved.route, r);
  }
}

Moe::Deferred Moe::backward_input(Pass& pass, const Tensor& dx, const ConstTensor& dy,
                                  const ConstTensor& x, Saved& saved) const {
  Ctx& ctx = pass.ctx;
  const TokenShare share = token_share(pass);
  const auto mine = [&](const ConstTensor& t) {
    return share.split ? t.slice(0, share.begin, share.begin + share.count) : t;
  };
  const int64_t most = saved.rows->size(0);
  Deferred deferred;
  if (!saved.act.present()) {
    saved.act = ctx.allocate("moe.act", x.dtype(), {most, inner_});
    if (saved.route.rounds.size() == 1)
      activate(pass, saved, used(pass, saved.route.rounds[0], saved.act));
  }
  deferred.d_rows = ctx.allocate("moe.d_rows", x.dtype(), {most, width_});
  deferred.d_inner = std::move(saved.inner);
  const Activation d_weights =
      ctx.allocate("moe.d_weights", sum_dtype(x.dtype()), saved.router.weights->shape());
  const auto backward_of_weights = [&](const ConstTensor& scaled) {
    combine_rows_backward(ctx, saved.results, d_weights, scaled, saved.results, saved.places,
                          saved.router.weights);
  };
  if (!moe_.scaled_inputs)
    backward_of_weights(mine(dy));
  else
    gather_rows(ctx, used_pairs(ctx, saved.results, saved.route), mine(dy),
                used_pairs(ctx, saved.pairs, saved.route), moe_.experts_per_token);
  Activation d_shared_x;
  if (shared_) d_shared_x = ctx.allocate("moe.d_shared_x", dx.dtype(), dx.shape());
  experts_backward(pass, saved.results, mine(x), saved, deferred,
                   shared_backward(pass, d_shared_x, dy, saved, deferred));
  Activation part;
  if (share.split) part = ctx.allocate("moe.dx", x.dtype(), {share.count, width_});
  const Tensor d_mine = share.split ? *part : dx;
  combine_rows(ctx, d_mine, saved.results, saved.places,
               moe_.scaled_inputs ? ConstTensor(*saved.router.weights) : ConstTensor());
  if (moe_.scaled_inputs) backward_of_weights(mine(x));
  saved.results.reset();
  deferred.router = router_.backward_input(pass, d_mine, d_weights, share, saved.router);
  if (share.split) gather_parts(pass, dx, part, share);
  if (shared_) add_shared_gradient(pass, dx, d_shared_x, dy, saved, deferred);
  return deferred;
}

// Backward of shared_forward(); writes into dx and `deferred`.
Moe::OverlappedWork Moe::shared_backward(Pass& pass, const Tensor& dx, const ConstTensor& dy,
                                         Saved& saved, Deferred& deferred) const {
  if (!shared_) return {};
  if (shared_gate_ >= 0)
    deferred.d_shared = pass.ctx.allocate("moe.d_shared", dx.dtype(), dx.shape());
  const auto second = [this, &pass, &saved, &deferred, dy] {
    if (shared_gate_ >= 0)
      scale_rows(pass.ctx, deferred.d_shared, dy, saved.gate->reshape({dy.size(0)}), false);
    const ConstTensor d = shared_gate_ >= 0 ? *deferred.d_shared : dy;
    deferred.shared = shared_->backward_second(pass, d, saved.shared);
  };
  return {second,
          [this, &pass, &deferred, dx] { shared_->backward_first(pass, dx, deferred.shared); }};
}

// dx += d_shared_x, the gradient through the shared expert, and the gradient through its factor.
void Moe::add_shared_gradient(Pass& pass, const Tensor& dx, const ConstTensor& d_shared_x,
                              const ConstTensor& dy, const Saved& saved, Deferred& deferred) const {
  Ctx& ctx = pass.ctx;
  add(ctx, dx, dx, d_shared_x);
  if (shared_gate_ < 0) return;
  const int64_t rows = dy.size(0);
  const DType wide = saved.gate->dtype();
  Activation d_gate = ctx.allocate("moe.d_gate", wide, {rows, 1});
  dot_rows(ctx, d_gate->reshape({rows}), dy, saved.shared_out);
  const Activation d_logits = ctx.allocate("moe.d_gate_logits", wide, {rows, 1});
  router_backward(ctx, d_logits, d_gate, saved.gate, saved.gate, saved.gate_choice, {}, kGateArgs);
  deferred.d_gate = ctx.allocate("moe.d_gate_narrow", dx.dtype(), {rows, 1});
  cast(ctx, deferred.d_gate, d_logits);
  linear_backward_input(ctx, dx, deferred.d_gate, pass.params.value(shared_gate_), true);
}

void Moe::backward_weight(Pass& pass, const ConstTensor& dy, const ConstTensor& x,
                          const Saved& saved, const Deferred& deferred) const {
  const TokenShare share = token_share(pass);
  pass.params.expect_gradients(experts_.front().gate);  // as planned, for any first writer
  if (saved.route.rounds.size() == 1)
    experts_backward_weight(pass, saved, deferred, saved.route.rounds[0]);
  else if (pass.params.trained(experts_.front().gate))
    skip_planned_products(pass.ctx, moe_.expert_bias);
  router_.backward_weight(
      pass, share.split ? x.slice(0, share.begin, share.begin + share.count) : x, deferred.router);
  if (!shared_) return;
  const ConstTensor d_shared = deferred.d_shared.present() ? *deferred.d_shared : dy;
  shared_->backward_weight(pass, d_shared, x, saved.shared, deferred.shared);
  if (shared_gate_ < 0) return;
  if (!pass.params.trained(shared_gate_)) return;
  const GradientSlot dw = pass.params.gradient(shared_gate_);
  linear_backward_weight(pass.ctx, dw.grad, deferred.d_gate, x, dw.accumulate);
}

}  // namespace trireme
