#include "training/train_step.h"

#include <cmath>
#include <cstring>

#include "engine/ops/elementwise.h"
#include "optim/schedule.h"

namespace trireme {
namespace {

// Slots of TrainState::scalars_, one cache line or more each.
enum Slot : int { kState, kScalars, kLossSum, kSumOfSquares, kGradScale, kSlots };
constexpr int64_t kSlotBytes = 128;
static_assert(kStepStateBytes <= kSlotBytes && kStepScalarsBytes <= kSlotBytes);

Tensor int_view(const std::vector<int32_t>& v) {
  return Tensor(const_cast<int32_t*>(v.data()), DType::kI32, Shape{std::ssize(v)});
}

}  // namespace

MicroBatch shape_of_micro_batch(int64_t sequences, int64_t sequence_length) {
  const auto t = static_cast<size_t>(checked_mul(sequences, sequence_length));
  MicroBatch batch;
  batch.tokens.resize(t);
  batch.targets.resize(t);
  batch.positions.resize(t);
  batch.rows.resize(t);
  for (int64_t b = 0; b <= sequences; ++b)
    batch.cu_seqlens.push_back(narrow<int32_t>(b * sequence_length));
  batch.max_seqlen = narrow<int32_t>(sequence_length);
  return batch;
}

Tokens tokens_of(const MicroBatch& batch) {
  Tokens tokens;
  tokens.count = std::ssize(batch.tokens);
  tokens.ids = int_view(batch.tokens);
  tokens.targets = int_view(batch.targets);
  tokens.positions = int_view(batch.positions);
  tokens.rows = ConstTensor(batch.rows.data(), DType::kI64, Shape{std::ssize(batch.rows)});
  tokens.cu_q = tokens.cu_k = int_view(batch.cu_seqlens);
  return tokens;
}

TrainState::TrainState(const RunConfig& config)
    : model(config.model, config.dtype),
      store(model.parameters(), config.dtype),
      optimizer(config.optimizer, store, config.seed),
      dtype_(config.dtype),
      loss_scale_(config.loss_scale) {}

void TrainState::allocate() {
  store.allocate(true);
  optimizer.allocate();
  scalars_ = Buffer("step scalars", kSlots * kSlotBytes);
  const StepState fresh = initial_step_state(dtype_, loss_scale_);
  std::memcpy(step_state().raw(), &fresh, sizeof fresh);
}

void TrainState::initialize(Ctx& ctx) {
  store.initialize(ctx.seed, ctx.threads);
  optimizer.initialize(ctx);
}

int64_t TrainState::bytes() const {
  return store.value_bytes() + store.gradient_bytes() + optimizer.state_bytes();
}

Tensor TrainState::step_state() const {
  return scalars_.tensor(DType::kU8, Shape{kStepStateBytes}, kState * kSlotBytes);
}

TrainStep::TrainStep(const RunConfig& config, TrainState& state, Communicator& group, Ctx& ctx)
    : config_(config), state_(state), group_(group), ctx_(ctx) {}

Tensor TrainStep::scalar(int slot, DType dtype, int64_t count) const {
  if (state_.scalars_.data() == nullptr) return Tensor(nullptr, dtype, Shape{count});
  return state_.scalars_.tensor(dtype, Shape{count}, slot * kSlotBytes);
}

void TrainStep::micro_batch(const MicroBatch& batch, bool last) {
  const Tokens tokens = tokens_of(batch);
  Pass pass{ctx_, state_.store, tokens};
  const Loss loss{scalar(kLossSum, DType::kF64), scalar(kGradScale, DType::kF64), {}};
  state_.model.train(pass, loss, config_.recompute, [&](int block) {
    if (!last || ctx_.planning()) return;
    state_.store.finish_gradients(block);
    // The reducer numbers blocks in the order of completion: the last block is its first.
    if (reducer_) reducer_->block_ready(state_.store.blocks() - 1 - block);
  });
}

ArenaPlan TrainStep::plan() {
  const MicroBatch batch = shape_of_micro_batch(config_.micro_batch_size, config_.sequence_length);
  ctx_.mode = Mode::kTrain;
  state_.store.begin_gradients();
  ctx_.arena.begin_planning();
  for (int64_t i = 0; i < config_.gradient_accumulation_steps; ++i)
    micro_batch(batch, i + 1 == config_.gradient_accumulation_steps);
  reduce_and_update(0);
  return ctx_.arena.end_planning();
}

void TrainStep::reduce_and_update(int64_t step) {
  const Tensor sum = scalar(kSumOfSquares, DType::kF64);
  const Tensor loss_sum = scalar(kLossSum, DType::kF64);
  const Tensor scalars = scalar(kScalars, DType::kU8, kStepScalarsBytes);
  if (ctx_.planning()) {
    const ConstTensor gradients(nullptr, state_.store.gradient_dtype(),
                                Shape{state_.store.flat_size()});
    sum_of_squares(ctx_, sum, gradients);
    return;
  }
  if (reducer_) reducer_->wait_all(ctx_.profile);
  if (group_.size() > 1) group_.all_reduce(loss_sum);
  sum_of_squares(ctx_, sum, state_.store.flat_gradients());
  StepDecision decision;
  decision.clip = config_.gradient_clipping;
  decision.learning_rate =
      learning_rate(config_.scheduler, config_.optimizer.lr, step, config_.train_steps);
  decision.dynamic_scale = config_.dtype == DType::kF16 && config_.loss_scale.static_scale == 0.0;
  decision.loss_scale = config_.loss_scale;
  decide_step(scalars, scalar(kState, DType::kU8, kStepStateBytes), sum, loss_sum, decision);
  state_.optimizer.update(ctx_, scalars);
}

StepResult TrainStep::run(int64_t step, const std::vector<MicroBatch>& batches,
                          const ArenaPlan& plan) {
  if (!reducer_ && group_.size() > 1) {
    std::vector<ElementRange> order;
    for (int b = state_.store.blocks(); b-- > 0;) {
      const FlatRange r = state_.store.block_range(b);
      order.push_back({r.begin, r.end});
    }
    reducer_ = std::make_unique<GradientReducer>(
        group_, state_.store.flat_gradients(), order,
        GradientReducer::Options{config_.comm.bucket_bytes, config_.comm.overlap});
  }
  StepState before;
  std::memcpy(&before, state_.step_state().raw(), sizeof before);
  int64_t valid = 0;
  for (const MicroBatch& batch : batches) valid += batch.valid_targets;
  if (group_.size() > 1) valid = group_.all_reduce_scalar(valid, ReduceOp::kSum);
  // A batch of masked tokens only has zero gradients, not infinite ones.
  const double count = static_cast<double>(std::max<int64_t>(1, valid));
  *scalar(kGradScale, DType::kF64).as<double>() = before.loss_scale / count;
  *scalar(kLossSum, DType::kF64).as<double>() = 0;
  *scalar(kSumOfSquares, DType::kF64).as<double>() = 0;

  ctx_.mode = Mode::kTrain;
  ctx_.step = step;
  state_.store.begin_gradients();
  ctx_.arena.begin_step(plan);
  for (size_t i = 0; i < batches.size(); ++i) micro_batch(batches[i], i + 1 == batches.size());
  reduce_and_update(step);
  ctx_.arena.end_step();

  StepState after;
  std::memcpy(&after, state_.step_state().raw(), sizeof after);
  StepResult result;
  result.loss = *scalar(kLossSum, DType::kF64).as<double>() / count;
  result.grad_norm = after.grad_norm;
  result.learning_rate =
      learning_rate(config_.scheduler, config_.optimizer.lr, step, config_.train_steps);
  result.loss_scale = before.loss_scale;
  result.valid_tokens = valid;
  result.skipped = after.skipped > before.skipped;
  result.consecutive_skips = after.consecutive_skips;
  result.total_skips = after.skipped;
  if (result.skipped) {
    const int64_t bad = first_non_finite(ctx_, state_.store.flat_gradients());
    result.first_bad = bad < 0 ? "the loss" : state_.store.element_name(bad);
  }
  return result;
}

double TrainStep::exposed_communication_seconds() const {
  return reducer_ ? reducer_->exposed_seconds() : 0.0;
}

}  // namespace trireme
