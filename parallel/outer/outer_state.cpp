#include "parallel/outer/outer_state.h"

#include "engine/ops/rows/elementwise.h"
#include "parallel/outer/compressors/compressors.h"
#include "parallel/outer/compressors/exact.h"
#include "parallel/outer/weight_pieces.h"

namespace trireme {
namespace {

std::unique_ptr<Compressor> compressor_of_updates(const CompressionConfig& config) {
  if (!config.enabled) return std::make_unique<ExactCompressor>();
  return make_compressor(config.options);
}

std::vector<CompressedPart> parts_of(const ParameterStore& store, Region region,
                                     const Compressor& compressor, const CompressionConfig& config,
                                     uint64_t seed) {
  try {
    return region_parts(store, region, config.enabled ? &compressor : nullptr, config.min_bytes,
                        seed);
  } catch (const InputError& e) {
    fail_input("outer.compression: ", e.what());
  }
}

}  // namespace

OuterState::OuterState(const OuterConfig& config, const ParameterStore& store, const Layout& layout,
                       bool sharded_weights, uint64_t seed)
    : config_(config),
      sharded_weights_(sharded_weights),
      dtype_(store.gradient_dtype()),
      compressor_(compressor_of_updates(config.compression)) {
  TRIREME_CHECK(config.enabled() && layout.site.size == config.sites, "state of ", layout.site.size,
                " sites, configured are ", config.sites);
  for (const Region region : kTrainedRegions) {
    const FlatRange whole = store.region_range(region);
    if (whole.size() == 0) continue;
    const GroupCoord& rank = layout.of(region);
    const auto cuts = cut_parts(parts_of(store, region, *compressor_, config.compression, seed),
                                rank.size, *compressor_);
    const auto own = static_cast<size_t>(rank.index);
    std::vector<FlatRange> pieces = consecutive_pieces(cuts, whole);
    const FlatRange piece = pieces[own];
    const bool feedback = config.compression.enabled && config.compression.error_feedback;
    regions_[static_cast<size_t>(region)] = std::make_unique<RegionState>(RegionState{
        .pieces = std::move(pieces),
        .piece = piece,
        .exchange =
            CompressionState(*compressor_, cuts[own], dtype_, layout.site, feedback, piece.begin)});
  }
}

int OuterState::arrays() const {
  return 2 + (config_.momentum > 0 ? 1 : 0) + (sharded_weights_ ? 1 : 0);
}

int64_t OuterState::bytes() const {
  int64_t total = 0;
  for (const auto& its : regions_)
    if (its != nullptr)
      total += arrays() * its->piece.size() * dtype_size(dtype_) + its->exchange.bytes();
  return total;
}

void OuterState::allocate(Ctx& ctx) {
  for (size_t r = 0; r < regions_.size(); ++r) {
    RegionState* const its = regions_[r].get();
    if (its == nullptr) continue;
    const int64_t n = its->piece.size(), width = dtype_size(dtype_);
    buffers_[r] = Buffer("weights of the sites", arrays() * n * width, ctx.memory());
    int64_t at = 0;
    const auto next = [&] {
      return buffers_[r].tensor(dtype_, Shape{n}, std::exchange(at, at + n * width));
    };
    its->shared = next();
    its->local = next();
    if (config_.momentum > 0) its->momentum = next();
    if (sharded_weights_) its->scratch = next();
    for (const Tensor& array : {its->shared, its->local, its->momentum, its->scratch})
      if (array.present()) fill_zero(ctx, array);
    its->exchange.allocate(ctx);
  }
}

}  // namespace trireme
