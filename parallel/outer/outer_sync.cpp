#include "parallel/outer/outer_sync.h"

#include <chrono>
#include <cmath>

#include "engine/ops/optimizer/optimizer_step.h"
#include "engine/ops/rows/elementwise.h"
#include "engine/ops/rows/transfer.h"
#include "parallel/outer/compressed_all_reduce.h"
#include "parallel/outer/scratch_step.h"
#include "parallel/store_block_gather.h"

namespace trireme {
namespace {

constexpr int64_t kScalarsAt = 128;  // of the StepScalars in OuterSync::scalars_
constexpr int kAll = -1;             // fragments

void add_once(std::vector<int>& sites, int site) {
  if (std::ranges::count(sites, site) == 0) sites.push_back(site);
}

}  // namespace

OuterSync::OuterSync(const Groups& groups, std::unique_ptr<UpdateExchange> exchange,
                     ParameterStore& store, OuterState& state, Ctx& ctx)
    : groups_(groups), store_(store), state_(state), ctx_(ctx), exchange_(std::move(exchange)) {
  for (const auto& unit : state.units())
    units_.push_back({*unit, WeightPieces(groups.of(unit->region), store, unit->region, unit->range,
                                          unit->pieces, ctx)});
}

template <class Use>
void OuterSync::for_each(int fragment, const Use& use) {
  for (const UnitWeights& weights : units_)
    if (fragment == kAll || weights.unit.fragment == fragment) use(weights);
}

ArenaPlan OuterSync::plan() {
  return plan_scratch_step(ctx_, [&] {
    add_squares(kAll);
    OuterState::OpenRound round;
    for (int f = 0; f < fragments(); ++f) {
      exchange_->start(f, round);
      exchange_->finish(f, round);
    }
  });
}

UpdateExchange::Start OuterSync::begin(const StoredWeights& weights, const ArenaPlan& plan,
                                       int64_t step) {
  weights_ = weights;
  plan_ = &plan;
  scalars_ = Buffer("outer scalars", kScalarsAt + kStepScalarsBytes, ctx_.memory());
  for_each(kAll,
           [&](const UnitWeights& w) { w.pieces.read(weights_, w.unit.shared, w.unit.scratch); });
  if (state_.apart) write_all(&OuterState::Unit::own);
  if (exchange_->ends_loaded_rounds()) end_loaded_rounds(step);
  const UpdateExchange::Start start = exchange_->join(step);
  if (!start.replaced) return start;
  for (int f = 0; f < fragments(); ++f) open(f) = {};
  state_.apart = false;
  write_all(&OuterState::Unit::shared);
  return start;
}

void OuterSync::end_loaded_rounds(int64_t step) {
  OuterRound round;
  for (int f = 0; f < fragments(); ++f)
    if (open(f).begun >= 0) end_round(f, step, false, round);
  if (round.fragments > 0) refresh_parameters();
}

Tensor OuterSync::squares() const {
  if (scalars_.data() == nullptr) return {nullptr, DType::kF64, Shape{1}};
  return scalars_.tensor(DType::kF64, {1});
}

// squares() = sum of the squares of the updates that count on this rank.
void OuterSync::add_squares(int fragment) {
  fill_zero(ctx_, squares());
  for_each(fragment, [&](const UnitWeights& w) {
    const ShardMap map = w.unit.map();
    for (const FlatRange& range : store_.counted_ranges())
      map.for_each(range, [&](const FlatRange& part, int64_t at) {
        sum_of_squares(ctx_, squares(), w.unit.update_or_shape().slice(0, at, at + part.size()));
      });
  });
}

// squares() over the site.
double OuterSync::squares_of_site() {
  return groups_.world.all_reduce_scalar(to_host<double>(ctx_, squares()).front(), ReduceOp::kSum);
}

// Step after which an open round ends.
int64_t OuterSync::ends_after(const OuterState::OpenRound& round) const {
  return round.begun + state_.config().overlap_steps;
}

// Step after which its second phase starts: halfway, so that each phase has as many steps. The
// order of phases must be the same on all ranks, so it depends on steps and not on what has
// arrived.
int64_t OuterSync::second_phase_after(const OuterState::OpenRound& round) const {
  return round.begun + (state_.config().overlap_steps + 1) / 2;
}

// update = shared - the site's weights, which is sent. An update that cannot be encoded is left
// out: it becomes zero.
void OuterSync::begin_round(int fragment, int64_t step) {
  OuterState::OpenRound& its = open(fragment);
  TRIREME_CHECK(its.begun < 0, "a round of fragment ", fragment, " begins before the last ended");
  for_each(fragment, [&](const UnitWeights& w) {
    const Tensor& update = w.unit.update;
    w.pieces.read(weights_, update, w.unit.scratch);
    scale(ctx_, update, update, -1.0);
    add(ctx_, update, update, w.unit.shared);
  });
  const GroupCoord site = exchange_->site();
  its = {.begun = step,
         .report = std::vector<double>(static_cast<size_t>(site.size) + 1),
         .own = site.index};
  in_scratch_step(ctx_, *plan_, [&] {
    add_squares(fragment);
    const double own = squares_of_site();
    const bool left_out = !(own < kMaxEncodedSquares);  // true for NaN
    if (left_out) for_each(fragment, [&](const UnitWeights& w) { fill_zero(ctx_, w.unit.update); });
    its.report[static_cast<size_t>(site.index)] = left_out ? OuterState::kNotFinite : 0;
    its.report.back() = left_out ? 0 : own;
    exchange_->start(fragment, its);
  });
}

// update = the sum of the updates of all sites, or their combination.
void OuterSync::complete_sum(int fragment) {
  OuterState::OpenRound& its = open(fragment);
  if (its.begun < 0 || its.summed) return;
  in_scratch_step(ctx_, *plan_, [&] { exchange_->finish(fragment, its); });
  its.summed = true;
}

// The site's weights of a unit = mixing times its own + (1 - mixing) times the shared ones.
void OuterSync::write_mixed(const UnitWeights& weights, double mixing) {
  const OuterState::Unit& unit = weights.unit;
  if (mixing == 0) return weights.pieces.write(weights_, unit.shared, unit.scratch);
  const Tensor &own = unit.own, &rest = unit.update;  // which is not needed any more
  weights.pieces.read(weights_, own, unit.scratch);
  scale(ctx_, own, own, mixing);
  scale(ctx_, rest, unit.shared, 1 - mixing);
  add(ctx_, own, own, rest);
  weights.pieces.write(weights_, own, unit.scratch);
}

bool OuterSync::is_replaced() const {
  return std::ranges::any_of(state_.open, &OuterState::OpenRound::replaced);
}

// Ends all rounds that closed without this site: the shared weights are the current ones, of all
// fragments.
void OuterSync::continue_from_shared(OuterRound& round) {
  if (!is_replaced()) return;
  round.replaced = true;
  for (int f = 0; f < fragments(); ++f) {
    if (!open(f).replaced) continue;
    round.newest_step = std::max(round.newest_step, open(f).newest);
    round.sent_bytes += exchange_->sent_bytes(f, open(f).begun);
    ++round.fragments;
    open(f) = {};
  }
  for_each(kAll, [&](const UnitWeights& w) { write_mixed(w, 0); });
}

// Changes the shared weights of a fragment by the updates of `sites` sites.
void OuterSync::change_by_updates(int fragment, int64_t step, int sites, OuterRound& round) {
  const OuterState::OpenRound& its = open(fragment);
  const double factor = update_factor(state_.config(), sites);
  in_scratch_step(ctx_, *plan_, [&] { add_squares(fragment); });
  const double squares = squares_of_site() * factor * factor;
  round.update_norm = std::hypot(round.update_norm, std::sqrt(squares));
  round.drift =
      std::hypot(round.drift, std::sqrt(std::max(0.0, its.report.back() / sites - squares)));
  const Tensor scalars = scalars_.tensor(DType::kU8, {kStepScalarsBytes}, kScalarsAt);
  for_each(fragment, [&](const UnitWeights& w) {
    change_shared(ctx_, state_.config(), w.unit, scalars, step, factor);
  });
}

void OuterSync::end_round(int fragment, int64_t step, bool at_once, OuterRound& round) {
  complete_sum(fragment);
  OuterState::OpenRound& its = open(fragment);
  if (its.replaced) return;
  const auto reports = static_cast<int>(its.report.size()) - 1;  // sites of the run that began it
  const auto of = [&](int site) { return its.report[static_cast<size_t>(site)]; };
  int sites = 0;
  for (int site = 0; site < reports; ++site) {
    if (of(site) == 0) ++sites;
    if (of(site) == OuterState::kNotFinite) add_once(round.left_out, site);
    if (of(site) == OuterState::kAbsent) add_once(round.absent, site);
  }
  if (sites > 0) change_by_updates(fragment, step, sites, round);
  // A site that was left out has weights of no use.
  const bool is_left_out = of(its.own) != 0;
  const double mixing = at_once || is_left_out ? 0.0 : state_.config().mixing;
  for_each(fragment, [&](const UnitWeights& w) { write_mixed(w, mixing); });
  round.sent_bytes += exchange_->sent_bytes(fragment, its.begun);
  ++round.fragments;
  its = {};
}

bool OuterSync::is_due(int64_t step, int64_t steps) const {
  const OuterConfig& config = state_.config();
  if (is_replaced()) return true;
  for (int f = 0; f < fragments(); ++f) {
    const OuterState::OpenRound& its = state_.open[static_cast<size_t>(f)];
    if (config.is_round(step, steps, f)) return true;
    if (its.begun >= 0 && (ends_after(its) <= step || second_phase_after(its) == step)) return true;
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
    const OuterState::OpenRound& its = open(f);
    if (its.begun < 0) continue;
    if (joint || ends_after(its) <= step)
      end_round(f, step, false, round);
    else if (second_phase_after(its) == step && !its.summed)
      in_scratch_step(ctx_, *plan_, [&] { exchange_->start_second_phase(f); });
  }
  continue_from_shared(round);
  const bool at_once = joint || config.overlap_steps == 0;
  const bool was_passed =
      step <= round.newest_step;  // the others have ended the rounds of this step
  for (int f = 0; f < fragments(); ++f)
    if (!was_passed && config.is_round(step, steps, f)) begin_round(f, step);
  for (int f = 0; at_once && f < fragments(); ++f)
    if (open(f).begun == step) end_round(f, step, true, round);
  continue_from_shared(round);
  if (round.fragments > 0) refresh_parameters();
  if (joint || (at_once && round.fragments == fragments())) state_.apart = false;
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (round.fragments > 0) round.seconds = std::exchange(seconds_, 0);
  return round;
}

void OuterSync::drop_open_rounds() {
  for (int f = 0; f < fragments(); ++f)
    if (!open(f).summed) open(f) = {};
}

OuterRound OuterSync::end_replaced() {
  OuterRound round;
  for (int f = 0; f < fragments(); ++f) complete_sum(f);
  continue_from_shared(round);
  if (round.replaced) refresh_parameters();
  return round;
}

void OuterSync::show_shared() {
  for (int f = 0; f < fragments(); ++f) complete_sum(f);
  if (is_replaced()) for_each(kAll, [&](const UnitWeights& w) { write_mixed(w, 0); });
  for_each(kAll,
           [&](const UnitWeights& w) { w.pieces.read(weights_, w.unit.own, w.unit.scratch); });
  write_all(&OuterState::Unit::shared);
}

// The site's weights = one of the arrays of the state.
void OuterSync::write_all(Tensor OuterState::Unit::*array) {
  for_each(kAll,
           [&](const UnitWeights& w) { w.pieces.write(weights_, w.unit.*array, w.unit.scratch); });
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
