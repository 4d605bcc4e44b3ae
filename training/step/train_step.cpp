#include "training/step/train_step.h"

#include <algorithm>
#include <cmath>

#include "engine/ops/optimizer/optimizer_step.h"
#include "engine/ops/rows/elementwise.h"
#include "engine/ops/rows/transfer.h"
#include "optim/schedule.h"
#include "parallel/outer/quantized_tile_code.h"
#include "parallel/outer/sites.h"
#include "parallel/pipeline/make_schedule.h"
#include "parallel/store_block_gather.h"
#include "training/step/batch_shard.h"

namespace trireme {
namespace {

// Slots of TrainState::scalars_, each at least one cache line. kGradScale: output of
// gradient_scale() (optim/step_control.h). kFirstBad: position of the first non-finite element in
// the stored gradients.
enum Slot : int { kState, kScalars, kSums, kGradScale, kFirstBad, kSlots };
constexpr int64_t kSlotBytes = 128;
// Elements of kSums, which are reduced together: loss, sum of squares of the gradients, four router
// losses.
enum Sum : int { kLoss = 0, kSquares = 1, kRouters = 2, kSumCount = 6 };
static_assert(kStepStateBytes <= kSlotBytes && kStepScalarsBytes <= kSlotBytes);

bool splits_backward(const Schedule& schedule) {
  for (const std::vector<Instruction>& rank : schedule.ranks)
    for (const Instruction& instruction : rank)
      if (instruction.kind == InstructionKind::kBackwardInput) return true;
  return false;
}

// Collective with compression; else nullptr.
std::unique_ptr<CompressedGradientSum> compressed_sum(const RunConfig& config, TrainState& state,
                                                      const Groups& groups, Ctx& ctx) {
  if (state.compression == nullptr) return nullptr;
  CompressedGradientSum::Moments moments;
  if (config.compression.moment_beta > 0)
    moments = {[&state] { return state.optimizer.first_moment(); }, config.gradient_clipping};
  return std::make_unique<CompressedGradientSum>(groups, state.store, ctx, *state.compression,
                                                 std::move(moments));
}

bool is_first_of_site(const Layout& layout) {
  return layout.tp.index == 0 && layout.cp.index == 0 && layout.dp.index == 0 &&
         layout.pp.index == 0;
}

}  // namespace

MicroBatch shape_of_micro_batch(int64_t sequences, int64_t sequence_length) {
  const auto t = static_cast<size_t>(checked_mul(sequences, sequence_length));
  MicroBatch batch;
  batch.tokens.resize(t);
  batch.targets.resize(t);
  batch.positions.resize(t);
  batch.global_index.resize(t);
  for (int64_t b = 0; b <= sequences; ++b)
    batch.cu_seqlens.push_back(narrow<int32_t>(b * sequence_length));
  batch.max_seqlen = narrow<int32_t>(sequence_length);
  return batch;
}

std::unique_ptr<WholeModel> make_whole_model(const RunConfig& config, OuterState::Holder holder) {
  const Model model(config.model, config.dtype, layout_of({}, 0),
                    chunks_of(split_layers(config.model.num_layers, 1, {}), {}),
                    config.finetune.lora);
  return std::make_unique<WholeModel>(config.outer, model.parameters(), config.dtype,
                                      config.model.num_layers, config.seed, holder);
}

TrainState::TrainState(const RunConfig& config, const Layout& layout, GroupCoord its_site,
                       const std::vector<int>& nodes)
    : model(
          config.model, config.dtype, layout,
          chunks_of(split_layers(config.model.num_layers,
                                 layout.pp.size * static_cast<int>(config.pipeline.virtual_stages),
                                 config.pipeline.layers),
                    layout.pp),
          config.finetune.lora),
      store(model.parameters(), config.dtype,
            {config.zero.stage, layout.of(Region::kDense), layout.of(Region::kExpert)},
            config.finetune.base_quantization),
      optimizer(config.optimizer, config.zero.offload_optimizer, store, config.seed),
      site(its_site),
      data_site(config.outer.is_remote() ? GroupCoord{config.outer.sites, config.outer.site}
                                         : its_site),
      is_first_rank(its_site.index == 0 && is_first_of_site(layout)),
      dtype_(config.dtype),
      sequence_length_(config.sequence_length),
      loss_scale_(config.loss_scale) {
  if (config.float8.enabled) model.use_float8(config.float8);
  if (config.compression.enabled && (nodes.empty() ? layout.dp : layout.data).size > 1)
    compression = std::make_unique<GradientCompression>(config.compression, store, config.parallel,
                                                        layout, nodes, config.seed);
  // Refused here, where ranks report one error together.
  (void)quantized_tile_codes(store, config.weight_compression);
  const int first_sharded = optimizer.has_master() ? 1 : 3;  // ZeRO stage that shards the weights
  if (config.outer.enabled())
    outer = std::make_unique<OuterState>(
        config.outer, store, layout, site, config.model.num_layers,
        config.zero.stage >= first_sharded, config.seed,
        config.outer.is_remote() ? OuterState::kRemoteSite : OuterState::kSite);
  if (config.outer.is_remote() && is_first_rank)
    whole = make_whole_model(config, OuterState::kSender);
}

StoredWeights TrainState::weights() const {
  const int stage = store.sharding().stage;
  if (optimizer.has_master()) return {optimizer.master(), &store.state_map(), stage >= 1};
  return {store.flat_values(), &store.value_map(), stage >= 3};
}

void TrainState::allocate(Ctx& ctx) {
  store.allocate(ctx, true);
  optimizer.allocate(ctx);
  if (compression != nullptr) compression->allocate(ctx);
  if (outer != nullptr) outer->allocate(ctx);
  if (whole != nullptr) whole->allocate();
  model.reserve_positions(ctx, sequence_length_);
  if (model.routers() != nullptr) model.routers()->place(ctx);
  if (model.float8() != nullptr) model.float8()->allocate(ctx);
  scalars_ = Buffer("step scalars", kSlots * kSlotBytes, ctx.memory());
  if (ctx.gpu != nullptr)
    on_the_host_ =
        Buffer("step outcomes", TrainStep::kMaxOpen * kSlots * kSlotBytes, Memory::kPinned);
  write_step_state(ctx, initial_step_state(dtype_, loss_scale_));
}

void TrainState::initialize(Ctx& ctx) {
  store.initialize(ctx, ctx.seed);
  optimizer.initialize(ctx);
}

int64_t TrainState::bytes() const {
  return store.value_bytes() + store.copy_bytes() + store.gradient_bytes() +
         optimizer.state_bytes() + (compression == nullptr ? 0 : compression->bytes()) +
         (outer == nullptr ? 0 : outer->bytes());
}

int64_t TrainState::host_bytes() const {
  return (outer == nullptr ? 0 : outer->message_bytes) + (whole == nullptr ? 0 : whole->bytes());
}

Tensor TrainState::step_state() const {
  return scalars_.tensor(DType::kU8, Shape{kStepStateBytes}, kState * kSlotBytes);
}

StepState TrainState::read_step_state(Ctx& ctx) const {
  StepState state;
  transfer(ctx, Tensor(&state, DType::kU8, Shape{kStepStateBytes}), step_state());
  return state;
}

void TrainState::write_step_state(Ctx& ctx, const StepState& state) {
  transfer(ctx, step_state(), ConstTensor(&state, DType::kU8, Shape{kStepStateBytes}));
}

std::vector<int> nodes_of_site(const RunConfig& config, const Communicator& all) {
  const SitePosition position = site_position(all.size(), config.outer.sites_in_job(), all.rank());
  std::vector<int> nodes;
  for (int rank = 0; rank < world_size(config.parallel); ++rank)
    nodes.push_back(all.node(all.rank() - position.rank + rank));
  return nodes;
}

TrainState make_train_state(const RunConfig& config, const Communicator& all) {
  const SitePosition position = site_position(all.size(), config.outer.sites_in_job(), all.rank());
  const bool by_node = config.compression.scope == CompressionScope::kNodes;
  return {config, layout_of(config.parallel, position.rank), position.site,
          by_node ? nodes_of_site(config, all) : std::vector<int>()};
}

TrainStep::TrainStep(const RunConfig& config, TrainState& state, const Groups& groups, Ctx& ctx)
    : config_(config),
      state_(state),
      groups_(groups),
      ctx_(ctx),
      schedule_(load_schedule(config.pipeline.schedule, config.parallel.pp,
                              static_cast<int>(config.pipeline.virtual_stages),
                              static_cast<int>(config.gradient_accumulation_steps))),
      executor_(schedule_, *groups.pp),
      stage_(state.model, state.store, groups, ctx,
             {config.recompute, config.gradient_accumulation_steps, config.sequence_length,
              splits_backward(schedule_),
              learns_from_pairs(config_.finetune) ? &config_.finetune.dpo : nullptr}),
      graphs_(config_, groups, executor_.program(), state.store, stage_, ctx),
      compressed_(compressed_sum(config, state, groups, ctx)),
      sync_(groups, state.store, ctx, {config.comm.bucket_bytes, config.comm.overlap},
            compressed_.get()) {
  ParameterStore& store = state.store;
  store.attach(groups, ctx,
               {config.zero.prefetch, quantized_tile_codes(store, config.weight_compression),
                config.zero.copy_ranks});
  // Each gradient element enters the norm on the one rank that owns it.
  for (const FlatRange& range : store.counted_ranges())
    store.owned().for_each(range, [&](const FlatRange& part, int64_t) {
      const int64_t at = store.gradient_map().offset(part.begin);
      counted_.push_back({at, at + part.size()});
    });
}

Tensor TrainStep::scalar(int slot, DType dtype, int64_t count) const {
  if (state_.scalars_.data() == nullptr) return Tensor(nullptr, dtype, Shape{count});
  return state_.scalars_.tensor(dtype, Shape{count}, slot * kSlotBytes);
}

Tensor TrainStep::sums(int begin, int end) const {
  if (state_.scalars_.data() == nullptr) return Tensor(nullptr, DType::kF64, Shape{end - begin});
  return scalar(kSums, DType::kF64, kSumCount).slice(0, begin, end);
}

const std::vector<MicroBatch>& TrainStep::batch_shards(const std::vector<MicroBatch>& batches) {
  if (is_batch_shard_whole(config_.micro_batch_size, config_.sequence_length, groups_.layout))
    return batches;
  local_.resize(batches.size());
  for (size_t i = 0; i < batches.size(); ++i)
    fill_batch_shard(batches[i], config_.sequence_length, groups_.layout, config_.model, local_[i]);
  return local_;
}

int64_t TrainStep::count_valid_targets(const std::vector<MicroBatch>& batches) const {
  // Tensor-parallel ranks and pipeline stages have the same targets; one of each counts them.
  const Layout& layout = groups_.layout;
  int64_t valid = 0;
  if (layout.tp.index == 0 && layout.pp.index == 0)
    for (const MicroBatch& batch : batches)
      valid += learns_from_pairs(config_.finetune) ? std::ssize(batch.pairs) : batch.valid_targets;
  if (groups_.world.size() > 1) valid = groups_.world.all_reduce_scalar(valid, ReduceOp::kSum);
  return valid;
}

// Sums over all ranks; collective if the run trains on preferences. Tensor-parallel ranks have the
// same sums; one of them counts.
PreferenceSums TrainStep::all_preferences() const {
  if (!learns_from_pairs(config_.finetune)) return {};
  const PreferenceSums mine =
      groups_.layout.tp.index == 0 ? stage_.preferences() : PreferenceSums{};
  double sums[] = {mine.loss, mine.chosen_reward, mine.rejected_reward, mine.correct, mine.pairs};
  if (groups_.world.size() > 1)
    groups_.world.all_reduce(Tensor(sums, DType::kF64, Shape{std::ssize(sums)}));
  return {sums[0], sums[1], sums[2], sums[3], sums[4]};
}

void TrainStep::forward_and_backward(int64_t step, const std::vector<MicroBatch>& batches) {
  const Loss loss{
      sums(kLoss, kLoss + 1), scalar(kGradScale, DType::kF64), {}, sums(kRouters, kSumCount)};
  stage_.begin(batches, loss, [this](int block, bool last) { sync_.block_done(block, last); });
  pipeline_ = {};
  if (graphs_.active())
    graphs_.run(step);
  else
    pipeline_ = executor_.run(stage_, ctx_);
}

ArenaPlan TrainStep::plan() {
  const std::vector<MicroBatch> batches(
      static_cast<size_t>(config_.gradient_accumulation_steps),
      shape_of_micro_batch(config_.micro_batch_size, config_.sequence_length));
  ctx_.mode = Mode::kTrain;
  state_.store.begin_gradients();
  ctx_.arena.begin_planning();
  forward_and_backward(0, batch_shards(batches));
  reduce_and_update(0);
  return ctx_.arena.end_planning();
}

void allocate_memory(TrainState& state, Ctx& ctx, int64_t arena_bytes) {
  state.allocate(ctx);
  ctx.arena.reserve(arena_bytes);
}

ArenaPlan start_fresh(TrainState& state, TrainStep& step, Ctx& ctx) {
  ArenaPlan plan = step.plan();
  allocate_memory(state, ctx, plan.capacity);
  state.initialize(ctx);
  return plan;
}

void TrainStep::local_sum_of_squares() {
  const Tensor sum = sums(kSquares, kSquares + 1);
  const DType dtype = state_.store.gradient_dtype();
  fill_zero(ctx_, sum);
  for (const FlatRange& range : counted_) {
    const ConstTensor part = ctx_.planning()
                                 ? ConstTensor(nullptr, dtype, Shape{range.size()})
                                 : state_.store.flat_gradients().slice(0, range.begin, range.end);
    sum_of_squares(ctx_, sum, part);
  }
}

void TrainStep::reduce_and_update(int64_t step) {
  sync_.finish(sums(kLoss, kLoss + 1));
  local_sum_of_squares();
  if (ctx_.planning()) return;
  // Tensor-parallel ranks have the same losses; one of them counts.
  if (groups_.layout.tp.index != 0) {
    fill_zero(ctx_, sums(kLoss, kLoss + 1));
    fill_zero(ctx_, sums(kRouters, kSumCount));
  }
  const int used = state_.model.routers() != nullptr ? kSumCount : kRouters;
  if (groups_.world.size() > 1) groups_.world.all_reduce(sums(0, used));
  StepDecision decision;
  const bool sent_moments = compressed_ != nullptr && compressed_->sent_moments();
  decision.clip = sent_moments ? 0 : config_.gradient_clipping;
  decision.learning_rate = rate(step);
  decision.dynamic_scale = config_.dtype == DType::kF16 && config_.loss_scale.static_scale == 0.0;
  decision.loss_scale = config_.loss_scale;
  const Tensor scalars = scalar(kScalars, DType::kU8, kStepScalarsBytes);
  decide_step(ctx_, scalars, scalar(kState, DType::kU8, kStepStateBytes),
              sums(kSquares, kSquares + 1), sums(kLoss, kLoss + 1), decision);
  search_first_bad();
  state_.optimizer.update(ctx_, scalars);
  const int stage = state_.store.sharding().stage;
  if (stage == 1 || stage == 2) gather_updated_values(groups_, state_.store, ctx_.profile);
  if (state_.model.routers() != nullptr)
    state_.model.routers()->finish_step(ctx_, *groups_.dp, *groups_.pp, scalars);
  if (state_.model.float8() != nullptr)
    state_.model.float8()->finish_step(ctx_, *groups_.tp, *groups_.data, scalars);
}

double TrainStep::rate(int64_t step) const {
  return learning_rate(config_.scheduler, config_.optimizer.lr, step, config_.train_steps);
}

// Finds the first non-finite gradient of a skipped step. Runs within the step, because the next
// step may overwrite the gradients before the host reads the result.
void TrainStep::search_first_bad() {
  const Tensor first = scalar(kFirstBad, DType::kI64);
  fill_bytes(ctx_, first, kNotFoundByte);
  for (const FlatRange& range : counted_)
    first_non_finite(ctx_, first, state_.store.flat_gradients().slice(0, range.begin, range.end),
                     range.begin, scalar(kScalars, DType::kU8, kStepScalarsBytes));
}

// Name of the first non-finite gradient over all ranks, in the order of pipeline stages and
// elements. Collective.
std::string TrainStep::name_first_bad(int64_t found) const {
  const ParameterStore& store = state_.store;
  std::string mine;
  if (found != kNotFound) {
    const int64_t flat = store.gradient_map().flat(found);
    std::string place = std::to_string(flat);
    place.insert(0, 20 - place.size(), '0');
    mine = concat(1000000 + groups_.layout.pp.index, place, " ", store.element_name(flat));
  }
  std::string least;
  for (const std::string& other : groups_.world.all_gather_strings(mine))
    if (!other.empty() && (least.empty() || other < least)) least = other;
  return least.empty() ? "the loss" : least.substr(least.find(' ') + 1);
}

void TrainStep::start(int64_t step, const std::vector<MicroBatch>& batches, const ArenaPlan& plan) {
  TRIREME_CHECK(open() < max_open(), "step ", step, " starts while ", open(), " steps are open");
  // If no step is open, the waits counted so far belong to an evaluation: discard them.
  if (ctx_.gpu != nullptr && open() == 0)
    (void)cuda::take_wait_seconds(*ctx_.gpu, cuda::pending_wait_count(*ctx_.gpu));
  const std::vector<MicroBatch>& local = batch_shards(batches);
  Open& mine = opened(started_);
  mine.step = step;
  mine.valid_tokens = count_valid_targets(local);
  gradient_scale(ctx_, scalar(kGradScale, DType::kF64, 2),
                 scalar(kState, DType::kU8, kStepStateBytes), mine.valid_tokens);
  fill_zero(ctx_, sums(0, kSumCount));

  ctx_.mode = Mode::kTrain;
  ctx_.step = step;
  state_.store.begin_gradients();
  ctx_.arena.begin_step(plan);
  try {
    forward_and_backward(step, local);
    reduce_and_update(step);
  } catch (...) {
    ctx_.arena.abandon_step();  // frees all allocations, in any order
    throw;
  }
  ctx_.arena.end_step();

  mine.idle_seconds = pipeline_.idle_seconds;
  mine.exposed_seconds = sync_.exposed_seconds();
  mine.preferences = all_preferences();
  if (state_.model.routers() != nullptr) mine.expert_loads = state_.model.routers()->loads();
  if (ctx_.gpu != nullptr) copy_scalars();
  ++started_;
}

// Queues the copy of this step's scalars to the host.
void TrainStep::copy_scalars() {
  Open& mine = opened(started_);
  mine.waits = cuda::pending_wait_count(*ctx_.gpu);
  for (int64_t other = finished_; other < started_; ++other) mine.waits -= opened(other).waits;
  std::byte* const to =
      state_.on_the_host_.data() + started_ % kMaxOpen * int64_t{kSlots} * kSlotBytes;
  cuda::copy_async(*ctx_.gpu, ctx_.gpu->main, to, state_.scalars_.data(),
                   int64_t{kSlots} * kSlotBytes);
  if (mine.copied.raw() == nullptr) mine.copied = cuda::make_event(*ctx_.gpu);
  cuda::record(mine.copied, ctx_.gpu->main);
}

// Slots of a completed open step, on the host.
const std::byte* TrainStep::scalars_of(int64_t number) const {
  if (ctx_.gpu == nullptr) return state_.scalars_.data();
  return state_.on_the_host_.data() + number % kMaxOpen * int64_t{kSlots} * kSlotBytes;
}

StepResult TrainStep::finish() {
  TRIREME_CHECK(open() > 0, "no step is open");
  Open& mine = opened(finished_);
  if (ctx_.gpu != nullptr) {
    cuda::synchronize(mine.copied);
    groups_.world.check_alive();  // after a rank is lost, a GPU returns undefined results
  }
  const std::byte* const slots = scalars_of(finished_++);
  const auto* totals = reinterpret_cast<const double*>(slots + kSums * kSlotBytes);
  const auto* state = reinterpret_cast<const StepState*>(slots + kState * kSlotBytes);
  // At least 1, for a batch in which all tokens are masked.
  const auto count = static_cast<double>(std::max<int64_t>(1, mine.valid_tokens));
  StepResult result;
  result.loss = totals[kLoss] / count;
  result.grad_norm = state->grad_norm;
  result.learning_rate = rate(mine.step);
  result.loss_scale = reinterpret_cast<const double*>(slots + kGradScale * kSlotBytes)[1];
  result.valid_tokens = mine.valid_tokens;
  result.preferences = mine.preferences;
  for (size_t i = 0; i < result.router_losses.size(); ++i)
    result.router_losses[i] = totals[kRouters + i] / count;
  result.expert_loads = std::move(mine.expert_loads);
  result.consecutive_skips = state->consecutive_skips;
  result.total_skips = state->skipped;
  result.exposed_communication_seconds =
      ctx_.gpu != nullptr ? cuda::take_wait_seconds(*ctx_.gpu, mine.waits) : mine.exposed_seconds;
  result.pipeline_idle_seconds = mine.idle_seconds;
  result.skipped = reinterpret_cast<const StepScalars*>(slots + kScalars * kSlotBytes)->skip != 0;
  if (result.skipped)
    result.first_bad =
        name_first_bad(*reinterpret_cast<const int64_t*>(slots + kFirstBad * kSlotBytes));
  return result;
}

}  // namespace trireme
