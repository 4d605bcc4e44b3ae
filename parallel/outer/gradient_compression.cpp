#include "parallel/outer/gradient_compression.h"

namespace trireme {

namespace {

std::vector<CompressedPart> parts_of(const ParameterStore& store, Region region,
                                     const Compressor& compressor, const CompressionConfig& config,
                                     uint64_t seed) {
  try {
    return region_parts(store, region,
                        {&compressor, config.min_bytes, dtype_size(store.gradient_dtype())}, seed);
  } catch (const InputError& e) {
    fail_input("compression.gradients: ", e.what());
  }
}

FlatRange range_of(const std::vector<CompressedPart>& piece) {
  if (piece.empty()) return {};
  return {piece.front().range().begin, piece.back().range().end};
}

}  // namespace

GradientCompression::GradientCompression(const GradientCompressionConfig& config,
                                         const ParameterStore& store, const ParallelSizes& sizes,
                                         const Layout& layout, const std::vector<int>& nodes,
                                         uint64_t seed)
    : config_(config), compressor_(make_compressor(config.options)) {
  TRIREME_CHECK(store.sharding().stage <= 1, "gradients are compressed at ZeRO stage ",
                store.sharding().stage, ", expected 0 or 1");
  for (const Region region : kTrainedRegions) {
    if (layout.of(region).size == 1 || store.region_range(region).size() == 0) continue;
    const SumLevels levels = sum_levels(sizes, layout, region, nodes);
    std::vector<CompressedPart> parts;
    if (levels.outer.size > 1) parts = parts_of(store, region, *compressor_, config, seed);
    const auto pieces = cut_parts(parts, levels.inner.size, *compressor_);
    std::vector<FlatRange> ranges;
    ranges.reserve(pieces.size());
    for (const std::vector<CompressedPart>& piece : pieces) ranges.push_back(range_of(piece));
    const std::vector<CompressedPart>& own = pieces[static_cast<size_t>(levels.inner.index)];
    sums_[static_cast<size_t>(region)] = std::make_unique<RegionSum>(
        RegionSum{levels, std::move(ranges),
                  CompressionState(*compressor_, own, store.gradient_dtype(), levels.outer,
                                   config.error_feedback)});
  }
}

int64_t GradientCompression::bytes() const {
  int64_t total = 0;
  for (const auto& sum : sums_)
    if (sum != nullptr) total += sum->state.bytes();
  return total;
}

void GradientCompression::allocate(Ctx& ctx) {
  for (const auto& sum : sums_)
    if (sum != nullptr) sum->state.allocate(ctx);
}

}  // namespace trireme
