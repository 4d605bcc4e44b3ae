#include "parallel/outer/outer_sync.h"

#include <chrono>
#include <cmath>
#include <numeric>

#include "engine/ops/optimizer/optimizer_step.h"
#include "engine/ops/rows/elementwise.h"
#include "engine/ops/rows/transfer.h"
#include "parallel/store_block_gather.h"

namespace trireme {
namespace {

constexpr int64_t kScalarsAt = 128;  // of the StepScalars in OuterSync::scalars_

}  // namespace

OuterSync::OuterSync(const Groups& groups, Communicator& peers, ParameterStore& store,
                     OuterState& state, Ctx& ctx)
    : groups_(groups), peers_(peers), store_(store), state_(state), ctx_(ctx) {
  for (const Region region : kTrainedRegions)
    if (state.region(region) != nullptr)
      exchanges_[static_cast<size_t>(region)] = std::make_unique<Exchange>(
          groups.of(region), peers, store, region, *state.region(region), ctx);
}

template <class Use>
void OuterSync::for_each(const Use& use) {
  for (const auto& exchange : exchanges_)
    if (exchange != nullptr) use(*exchange);
}

ArenaPlan OuterSync::plan() {
  ctx_.arena.begin_planning();
  add_squares();
  {
    const Arena::Region scratch(ctx_.arena, "outer exchange");
    sum_updates(0);
    add_squares();
  }
  return ctx_.arena.end_planning();
}

void OuterSync::begin(const StoredWeights& weights) {
  weights_ = weights;
  scalars_ = Buffer("outer scalars", kScalarsAt + kStepScalarsBytes, ctx_.memory());
  for_each([&](Exchange& e) { e.pieces.read(weights_, e.state.shared, e.state.scratch); });
  if (!state_.apart) return;
  write(&OuterState::RegionState::local);
}

// local = shared - the site's weights.
void OuterSync::read_updates() {
  for_each([&](Exchange& e) {
    const Tensor& update = e.state.local;
    e.pieces.read(weights_, update, e.state.scratch);
    scale(ctx_, update, update, -1.0);
    add(ctx_, update, update, e.state.shared);
  });
}

// Elements of `local`; without memory in a planning run.
Tensor OuterSync::update_of(const Exchange& e) const {
  if (e.state.local.present()) return e.state.local;
  return {nullptr, store_.gradient_dtype(), Shape{e.state.piece.size()}};
}

Tensor OuterSync::squares() const {
  if (scalars_.data() == nullptr) return {nullptr, DType::kF64, Shape{1}};
  return scalars_.tensor(DType::kF64, {1});
}

// squares() = sum of the squares of the elements of `local` that count on this rank.
void OuterSync::add_squares() {
  fill_zero(ctx_, squares());
  for_each([&](const Exchange& e) {
    const ShardMap map = e.state.map();
    for (const FlatRange& range : store_.counted_ranges())
      map.for_each(range, [&](const FlatRange& part, int64_t at) {
        sum_of_squares(ctx_, squares(), update_of(e).slice(0, at, at + part.size()));
      });
  });
}

// squares() over the site.
double OuterSync::squares_of_site() {
  return groups_.world.all_reduce_scalar(to_host<double>(ctx_, squares()).front(), ReduceOp::kSum);
}

// Returns the sites that are left out; `own`: this one is, its update becomes zero.
std::vector<int> OuterSync::leave_out(bool own) {
  if (own) for_each([&](const Exchange& e) { fill_zero(ctx_, e.state.local); });
  std::vector<int64_t> flags(static_cast<size_t>(peers_.size()), 0);
  flags[static_cast<size_t>(peers_.rank())] = own ? 1 : 0;
  peers_.all_reduce(Tensor(flags.data(), DType::kI64, Shape{peers_.size()}));
  std::vector<int> out;
  for (int site = 0; site < peers_.size(); ++site)
    if (flags[static_cast<size_t>(site)] != 0) out.push_back(site);
  return out;
}

// local = the sum of the updates of all sites.
void OuterSync::sum_updates(int64_t step) {
  for_each([&](Exchange& e) { e.sum.start(update_of(e), step); });
  for_each([&](Exchange& e) { e.sum.finish(update_of(e)); });
}

// Changes the shared weights by `factor` times the sum of the updates.
void OuterSync::change_shared(int64_t step, double factor) {
  const OuterConfig& config = state_.config();
  const bool averages = step <= config.warmup_steps;
  const double momentum = averages ? 0.0 : config.momentum;
  // Not the first update, which would ignore the momentum: that is zero before it.
  const StepScalars values{
      .grad_multiplier = factor, .learning_rate = averages ? 1.0 : config.lr, .count = 2};
  const Tensor scalars = scalars_.tensor(DType::kU8, {kStepScalarsBytes}, kScalarsAt);
  transfer(ctx_, scalars, ConstTensor(&values, DType::kU8, Shape{kStepScalarsBytes}));
  for_each([&](const Exchange& e) {
    sgd_step(ctx_, e.state.shared, {}, e.state.local, momentum > 0 ? e.state.momentum : Tensor(),
             scalars, {.momentum = momentum, .nesterov = momentum > 0 && config.nesterov});
  });
}

// The site's weights = one of the arrays of the state.
void OuterSync::write(Tensor OuterState::RegionState::*array) {
  for_each([&](const Exchange& e) { e.pieces.write(weights_, e.state.*array, e.state.scratch); });
  refresh_parameters();
}

// Parameters from master weights, and where ranks own shards of them those of the others.
void OuterSync::refresh_parameters() {
  const Tensor values = store_.flat_values();
  if (weights_.array.raw() != values.raw())
    weights_.map->for_each({0, store_.flat_size()}, [&](const FlatRange& part, int64_t at) {
      const int64_t to = store_.value_map().offset(part.begin);
      cast(ctx_, values.slice(0, to, to + part.size()),
           weights_.array.slice(0, at, at + part.size()));
    });
  if (weights_.sharded && store_.sharding().stage < 3)
    gather_updated_values(groups_, store_, ctx_.profile);
}

OuterRound OuterSync::round(int64_t step, const ArenaPlan& plan) {
  const auto begin = std::chrono::steady_clock::now();
  OuterRound round;
  ctx_.arena.begin_step(plan);
  try {
    round = exchange(step);
  } catch (...) {
    ctx_.arena.abandon_step();  // frees all allocations, in any order
    throw;
  }
  ctx_.arena.end_step();
  write(&OuterState::RegionState::shared);
  state_.apart = false;
  round.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return round;
}

OuterRound OuterSync::exchange(int64_t step) {
  constexpr double kMaxSquares = 1e30;  // of an update that can be encoded
  OuterRound round;
  read_updates();
  add_squares();
  double own = squares_of_site();
  const bool left_out = !(own < kMaxSquares);  // true for NaN
  if (left_out) own = 0;
  round.left_out = leave_out(left_out);
  const auto sites = static_cast<double>(peers_.size() - std::ssize(round.left_out));
  const Arena::Region scratch(ctx_.arena, "outer exchange");  // not used if all are left out
  if (sites == 0) return round;
  sum_updates(step);
  add_squares();
  const double mean_squares = squares_of_site() / (sites * sites);
  const double all = peers_.all_reduce_scalar(own, ReduceOp::kSum);
  round.update_norm = std::sqrt(mean_squares);
  round.drift = std::sqrt(std::max(0.0, all / sites - mean_squares));
  for_each([&](const Exchange& e) { round.sent_bytes += e.state.exchange.sent_bytes(); });
  change_shared(step, 1 / sites);
  return round;
}

void OuterSync::show_shared() {
  for_each([&](Exchange& e) { e.pieces.read(weights_, e.state.local, e.state.scratch); });
  write(&OuterState::RegionState::shared);
}

}  // namespace trireme
