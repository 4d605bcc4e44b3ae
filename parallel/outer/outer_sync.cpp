#include "parallel/outer/outer_sync.h"

#include <chrono>
#include <cmath>

#include "engine/ops/optimizer/optimizer_step.h"
#include "engine/ops/rows/elementwise.h"
#include "engine/ops/rows/transfer.h"
#include "parallel/store_block_gather.h"

namespace trireme {
namespace {

constexpr int64_t kScalarsAt = 128;  // of the StepScalars in OuterSync::scalars_
constexpr int kAll = -1;             // fragments

}  // namespace

OuterSync::OuterSync(const Groups& groups, Communicator& peers, ParameterStore& store,
                     OuterState& state, Ctx& ctx)
    : groups_(groups),
      peers_(peers),
      store_(store),
      state_(state),
      ctx_(ctx),
      reports_(static_cast<size_t>(state.config().fragments)) {
  for (const auto& unit : state.units())
    exchanges_.push_back(
        std::make_unique<Exchange>(groups.of(unit->region), peers, store, *unit, ctx));
}

OuterSync::~OuterSync() {
  for (const Work& report : reports_) try {
      report.wait();
    } catch (...) {  // NOLINT: this object has been given up, and the group knows of a lost rank
    }
}

template <class Use>
void OuterSync::for_each(int fragment, const Use& use) {
  for (const auto& exchange : exchanges_)
    if (fragment == kAll || exchange->unit.fragment == fragment) use(*exchange);
}

// Runs work that needs scratch.
template <class Work>
void OuterSync::in_arena(const Work& work) {
  ctx_.arena.begin_step(*plan_);
  try {
    const Arena::Region scratch(ctx_.arena, "outer rounds");
    work();
  } catch (...) {
    ctx_.arena.abandon_step();  // frees all allocations, in any order
    throw;
  }
  ctx_.arena.end_step();
}

ArenaPlan OuterSync::plan() {
  ctx_.arena.begin_planning();
  {
    const Arena::Region scratch(ctx_.arena, "outer rounds");
    add_squares(kAll);
    for_each(kAll, [&](Exchange& e) {
      e.sum.start(update_of(e), 0);
      e.sum.finish(update_of(e));
    });
  }
  return ctx_.arena.end_planning();
}

void OuterSync::begin(const StoredWeights& weights, const ArenaPlan& plan) {
  weights_ = weights;
  plan_ = &plan;
  scalars_ = Buffer("outer scalars", kScalarsAt + kStepScalarsBytes, ctx_.memory());
  for_each(kAll, [&](Exchange& e) { e.pieces.read(weights_, e.unit.shared, e.unit.scratch); });
  if (state_.apart) write_all(&OuterState::Unit::own);
}

// Elements of `update`; without memory in a planning run.
Tensor OuterSync::update_of(const Exchange& e) const {
  if (e.unit.update.present()) return e.unit.update;
  return {nullptr, store_.gradient_dtype(), Shape{e.unit.piece.size()}};
}

Tensor OuterSync::squares() const {
  if (scalars_.data() == nullptr) return {nullptr, DType::kF64, Shape{1}};
  return scalars_.tensor(DType::kF64, {1});
}

// squares() = sum of the squares of the updates that count on this rank.
void OuterSync::add_squares(int fragment) {
  fill_zero(ctx_, squares());
  for_each(fragment, [&](const Exchange& e) {
    const ShardMap map = e.unit.map();
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

// Step after which an open round ends.
int64_t OuterSync::ends_after(const OuterState::Open& open) const {
  return open.begun + state_.config().overlap_steps;
}

// update = shared - the site's weights, which is sent. An update that cannot be encoded is left
// out: it becomes zero.
void OuterSync::begin_round(int fragment, int64_t step) {
  constexpr double kMaxSquares = 1e30;
  OuterState::Open& its = open(fragment);
  TRIREME_CHECK(its.begun < 0, "a round of fragment ", fragment, " begins before the last ended");
  for_each(fragment, [&](Exchange& e) {
    const Tensor& update = e.unit.update;
    e.pieces.read(weights_, update, e.unit.scratch);
    scale(ctx_, update, update, -1.0);
    add(ctx_, update, update, e.unit.shared);
  });
  in_arena([&] {
    add_squares(fragment);
    const double own = squares_of_site();
    const bool left_out = !(own < kMaxSquares);  // true for NaN
    if (left_out) for_each(fragment, [&](const Exchange& e) { fill_zero(ctx_, e.unit.update); });
    its.report.assign(static_cast<size_t>(peers_.size()) + 1, 0.0);
    its.report[static_cast<size_t>(peers_.rank())] = left_out ? 1 : 0;
    its.report.back() = left_out ? 0 : own;
    for_each(fragment, [&](Exchange& e) { e.sum.start(e.unit.update, step); });
  });
  reports_[static_cast<size_t>(fragment)] = peers_.all_reduce_async(
      Tensor(its.report.data(), DType::kF64, Shape{std::ssize(its.report)}));
  its.begun = step;
  its.summed = false;
}

// Second phase of an exchange. The order of all exchanges must be the same on all ranks, so that it
// depends on the step only, and not on what has arrived.
void OuterSync::proceed(int fragment) {
  in_arena([&] { for_each(fragment, [&](Exchange& e) { e.sum.proceed(e.unit.update); }); });
}

// update = the sum of the updates of all sites.
void OuterSync::complete_sum(int fragment) {
  OuterState::Open& its = open(fragment);
  if (its.begun < 0 || its.summed) return;
  in_arena([&] { for_each(fragment, [&](Exchange& e) { e.sum.finish(e.unit.update); }); });
  reports_[static_cast<size_t>(fragment)].wait();
  its.summed = true;
}

// Changes the shared weights by `factor` times the sum of the updates.
void OuterSync::change_shared(int fragment, int64_t step, double factor) {
  const OuterConfig& config = state_.config();
  const bool averages = step <= config.warmup_steps;
  const double momentum = averages ? 0.0 : config.momentum;
  // Not the first update, which would ignore the momentum: that is zero before it.
  const StepScalars values{
      .grad_multiplier = factor, .learning_rate = averages ? 1.0 : config.lr, .count = 2};
  const Tensor scalars = scalars_.tensor(DType::kU8, {kStepScalarsBytes}, kScalarsAt);
  transfer(ctx_, scalars, ConstTensor(&values, DType::kU8, Shape{kStepScalarsBytes}));
  for_each(fragment, [&](const Exchange& e) {
    sgd_step(ctx_, e.unit.shared, {}, e.unit.update, momentum > 0 ? e.unit.momentum : Tensor(),
             scalars, {.momentum = momentum, .nesterov = momentum > 0 && config.nesterov});
  });
}

// The site's weights of a unit = the shared ones, mixed with its own if it has gone on meanwhile.
void OuterSync::mix(Exchange& e, bool at_once) {
  const double mixing = at_once ? 0.0 : state_.config().mixing;
  if (mixing == 0) return e.pieces.write(weights_, e.unit.shared, e.unit.scratch);
  const Tensor &own = e.unit.own, &rest = e.unit.update;  // which is not needed any more
  e.pieces.read(weights_, own, e.unit.scratch);
  scale(ctx_, own, own, mixing);
  scale(ctx_, rest, e.unit.shared, 1 - mixing);
  add(ctx_, own, own, rest);
  e.pieces.write(weights_, own, e.unit.scratch);
}

void OuterSync::end_round(int fragment, int64_t step, bool at_once, OuterRound& round) {
  complete_sum(fragment);
  OuterState::Open& its = open(fragment);
  std::vector<int> left_out;
  for (int site = 0; site + 1 < std::ssize(its.report); ++site)
    if (its.report[static_cast<size_t>(site)] != 0) left_out.push_back(site);
  const auto sites = static_cast<double>(std::ssize(its.report) - 1 - std::ssize(left_out));
  if (sites > 0) {
    in_arena([&] { add_squares(fragment); });
    const double mean = squares_of_site() / (sites * sites);
    round.update_norm = std::hypot(round.update_norm, std::sqrt(mean));
    round.drift =
        std::hypot(round.drift, std::sqrt(std::max(0.0, its.report.back() / sites - mean)));
    change_shared(fragment, step, 1 / sites);
  }
  for_each(fragment, [&](Exchange& e) {
    round.sent_bytes += e.unit.exchange.sent_bytes();
    mix(e, at_once);
  });
  for (const int site : left_out)
    if (std::ranges::count(round.left_out, site) == 0) round.left_out.push_back(site);
  ++round.fragments;
  its = {};
}

bool OuterSync::is_due(int64_t step, int64_t steps) const {
  const OuterConfig& config = state_.config();
  for (int f = 0; f < fragments(); ++f) {
    const OuterState::Open& its = state_.open[static_cast<size_t>(f)];
    if (config.is_round(step, steps, f)) return true;
    if (its.begun >= 0 &&
        (ends_after(its) == step || its.begun + (config.overlap_steps + 1) / 2 == step))
      return true;
  }
  return false;
}

OuterRound OuterSync::after_step(int64_t step, int64_t steps) {
  const auto begin = std::chrono::steady_clock::now();
  const OuterConfig& config = state_.config();
  const bool joint = config.is_joint(step, steps);
  OuterRound round;
  state_.apart = true;
  for (int f = 0; f < fragments(); ++f) {
    const OuterState::Open& its = open(f);
    if (its.begun < 0) continue;
    if (joint || ends_after(its) == step)
      end_round(f, step, false, round);
    else if (its.begun + (config.overlap_steps + 1) / 2 == step && !its.summed)
      proceed(f);
  }
  const bool at_once = joint || config.overlap_steps == 0;
  for (int f = 0; f < fragments(); ++f)
    if (config.is_round(step, steps, f)) begin_round(f, step);
  for (int f = 0; at_once && f < fragments(); ++f)
    if (open(f).begun == step) end_round(f, step, true, round);
  if (round.fragments > 0) refresh_parameters();
  if (at_once && round.fragments == fragments()) state_.apart = false;
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (round.fragments > 0) round.seconds = std::exchange(seconds_, 0);
  return round;
}

void OuterSync::show_shared() {
  for (int f = 0; f < fragments(); ++f) complete_sum(f);
  for_each(kAll, [&](Exchange& e) { e.pieces.read(weights_, e.unit.own, e.unit.scratch); });
  write_all(&OuterState::Unit::shared);
}

// The site's weights = one of the arrays of the state.
void OuterSync::write_all(Tensor OuterState::Unit::*array) {
  for_each(kAll, [&](Exchange& e) { e.pieces.write(weights_, e.unit.*array, e.unit.scratch); });
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

}  // namespace trireme
