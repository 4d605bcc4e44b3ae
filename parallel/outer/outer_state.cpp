#include "parallel/outer/outer_state.h"

#include "engine/ops/optimizer/optimizer_step.h"
#include "engine/ops/rows/elementwise.h"
#include "engine/ops/rows/transfer.h"
#include "parallel/outer/compressors/compressors.h"
#include "parallel/outer/compressors/exact.h"
#include "parallel/outer/outer_algorithms.h"
#include "parallel/outer/weight_pieces.h"

namespace trireme {
namespace {

std::unique_ptr<Compressor> compressor_of_updates(const CompressionConfig& config) {
  if (!config.enabled) return std::make_unique<ExactCompressor>();
  return make_compressor(config.options);
}

// Parts of the parameters of a region in `range`.
std::vector<CompressedPart> parts_of(const ParameterStore& store, Region region,
                                     const FlatRange& range, const Compressor& compressor,
                                     const CompressionConfig& config, uint64_t seed) {
  std::vector<CompressedPart> parts;
  try {
    parts = region_parts(store, region,
                         {config.enabled ? &compressor : nullptr, config.min_bytes,
                          dtype_size(store.gradient_dtype())},
                         seed);
  } catch (const InputError& e) {
    fail_input("outer.compression: ", e.what());
  }
  std::erase_if(parts, [&](const CompressedPart& part) {
    return part.offset < range.begin || part.offset >= range.end;
  });
  return parts;
}

// Number of the layer in a parameter's name, "model.layers.3.mlp.up_proj.weight" or
// "transformer.h.3.mlp.c_fc.weight"; -1: it belongs to no layer.
int64_t layer_of(const std::string& name) {
  for (size_t at = name.find('.'); at != std::string::npos; at = name.find('.', at + 1)) {
    const size_t end = name.find_first_not_of("0123456789", at + 1);
    if (end != std::string::npos && end > at + 1 && name[end] == '.')
      return std::stoll(name.substr(at + 1, end - at - 1));
  }
  return -1;
}

int fragment_of(const ParameterStore& store, int block, int64_t layers, int fragments) {
  for (const ParameterSpec& spec : store.specs())
    if (spec.block == block)
      return static_cast<int>(std::max<int64_t>(0, layer_of(spec.name)) * fragments / layers);
  return 0;
}

}  // namespace

OuterState::OuterState(const OuterConfig& config, const ParameterStore& store, const Layout& layout,
                       GroupCoord site, int64_t layers, bool sharded_weights, uint64_t seed,
                       Holder holder)
    : open(static_cast<size_t>(config.fragments)),
      config_(config),
      holder_(holder),
      sharded_weights_(sharded_weights),
      dtype_(store.gradient_dtype()),
      compressor_(compressor_of_updates(config.compression)) {
  const int expected = holder == kSite ? config.sites : 1;
  TRIREME_CHECK(config.enabled() && site.size == expected, "state of ", site.size,
                " sites, expected ", expected);
  for (const Region region : kTrainedRegions)
    for (int block = 0; block < store.blocks(); ++block)
      add_unit(store, layout, site, region, block, layers, seed);
}

void OuterState::add_unit(const ParameterStore& store, const Layout& layout, GroupCoord site,
                          Region region, int block, int64_t layers, uint64_t seed) {
  const FlatRange range = store.block_range(block, region);
  if (range.size() == 0) return;
  const GroupCoord& rank = layout.of(region);
  const auto cuts =
      cut_parts(parts_of(store, region, range, *compressor_, config_.compression, seed), rank.size,
                *compressor_);
  const auto own = static_cast<size_t>(rank.index);
  std::vector<FlatRange> pieces = consecutive_pieces(cuts, range);
  const FlatRange piece = pieces[own];
  const bool feedback = config_.compression.enabled && config_.compression.error_feedback;
  const auto phases = holder_ == kSender ? CompressionState::kFirstPhase
                      : holder_ == kHub  ? CompressionState::kSecondPhase
                                         : CompressionState::kBothPhases;
  static const std::vector<CompressedPart> kNone;
  units_.push_back(std::make_unique<Unit>(
      Unit{.region = region,
           .fragment = fragment_of(store, block, layers, config_.fragments),
           .range = range,
           .pieces = std::move(pieces),
           .piece = piece,
           .exchange = CompressionState(*compressor_, holder_ == kRemoteSite ? kNone : cuts[own],
                                        dtype_, site, feedback, piece.begin, phases)}));
}

int OuterState::arrays() const {
  if (holder_ == kSender) return 1;
  return 2 + (config_.momentum > 0 ? 1 : 0) + (has_own() ? 1 : 0) + (sharded_weights_ ? 1 : 0);
}

int64_t OuterState::bytes() const {
  int64_t total = 0;
  for (const auto& unit : units_)
    total += arrays() * unit->piece.size() * dtype_size(dtype_) + unit->exchange.bytes();
  return total;
}

void OuterState::allocate(Ctx& ctx) {
  int64_t elements = 0;
  for (const auto& unit : units_) elements += arrays() * unit->piece.size();
  buffer_ = Buffer("weights of the sites", elements * dtype_size(dtype_), ctx.memory());
  if (elements > 0) fill_zero(ctx, buffer_.tensor(dtype_, Shape{elements}));
  int64_t at = 0;
  for (const auto& unit : units_) {
    const int64_t bytes = unit->piece.size() * dtype_size(dtype_);
    const auto next = [&] {
      return buffer_.tensor(dtype_, Shape{unit->piece.size()}, std::exchange(at, at + bytes));
    };
    unit->update = next();
    unit->own = has_own() ? next() : unit->update;
    if (holder_ != kSender) unit->shared = next();
    if (holder_ != kSender && config_.momentum > 0) unit->momentum = next();
    if (sharded_weights_) unit->scratch = next();
    unit->exchange.allocate(ctx);
  }
}

bool combines_updates(const OuterConfig& config) {
  const OuterAlgorithm* const row = find_outer_algorithm(config.algorithm);
  return row != nullptr && row->combination == UpdateCombination::kAdasum;
}

double update_factor(const OuterConfig& config, int sites) {
  return combines_updates(config) ? 1.0 : 1.0 / sites;
}

void change_shared(Ctx& ctx, const OuterConfig& config, const OuterState::Unit& unit,
                   const Tensor& scalars, int64_t step, double factor) {
  const bool averages = step <= config.warmup_steps;
  const double momentum = averages ? 0.0 : config.momentum;
  // Not the first update, which would ignore the momentum: that is zero before it.
  const StepScalars values{
      .grad_multiplier = factor, .learning_rate = averages ? 1.0 : config.lr, .count = 2};
  transfer(ctx, scalars, ConstTensor(&values, DType::kU8, Shape{kStepScalarsBytes}));
  sgd_step(ctx, unit.shared, {}, unit.update, momentum > 0 ? unit.momentum : Tensor(), scalars,
           {.momentum = momentum, .nesterov = momentum > 0 && config.nesterov});
}

}  // namespace trireme
