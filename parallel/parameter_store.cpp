#include "parallel/parameter_store.h"

#include <algorithm>
#include <utility>

#include "engine/core/normal_number.h"
#include "engine/ops/rows/elementwise.h"
#include "engine/ops/rows/fill_normal.h"
#include "engine/ops/rows/transfer.h"
#include "parallel/comm/collectives/collectives.h"
#include "parallel/packed_weights.h"
#include "parallel/quantized_weights.h"
#include "parallel/store_block_gather.h"

namespace trireme {
namespace {

constexpr int64_t kAlignment = 64;  // elements: a cache line for every element type

}  // namespace

Shape ParameterSpec::local_shape() const {
  if (box.extent.empty()) return shape;
  return Shape(std::span<const int64_t>(box.extent));
}

ElementIndex ParameterSpec::element_index() const {
  const Shape local = local_shape();
  int cut = 0;  // last dimension that the box cuts
  for (int d = 1; d < shape.rank(); ++d)
    if (local[d] != shape[d]) cut = d;
  int64_t inner = 1;  // elements of the logical tensor per step along `cut`
  for (int d = cut + 1; d < shape.rank(); ++d) inner *= shape[d];
  const auto start = [&](int d) {
    return box.extent.empty() ? int64_t{0} : box.start[static_cast<size_t>(d)];
  };
  if (cut == 0) return {.first = start(0) * inner};
  int64_t outer = inner;
  for (int d = 1; d <= cut; ++d) outer *= shape[d];
  for (int d = 1; d < cut; ++d)
    TRIREME_CHECK(local[d] == shape[d], name, " is cut in dimensions ", d, " and ", cut,
                  ", expected at most one besides 0");
  return {.first = start(0) * outer + start(cut) * inner,
          .width = local[cut] * inner,
          .stride = shape[cut] * inner};
}

ParamHandle ParameterList::add(ParameterSpec spec) {
  TRIREME_CHECK(specs_.empty() || spec.block >= specs_.back().block, "parameter ", spec.name,
                " of block ", spec.block, " is listed after block ", specs_.back().block);
  TRIREME_CHECK(
      !spec.fused_with_previous || (!specs_.empty() && specs_.back().block == spec.block &&
                                    is_dense(specs_.back().region) == is_dense(spec.region)),
      "parameter ", spec.name, " is fused with one of another block or region");
  if (adapters_ != nullptr) spec.region = frozen(spec.region);
  specs_.push_back(std::move(spec));
  return static_cast<ParamHandle>(specs_.size()) - 1;
}

ParamHandle ParameterList::add_adapter(ParameterSpec spec) {
  spec.adapter = true;
  const AdapterPlan* const plan = std::exchange(adapters_, nullptr);
  const ParamHandle h = add(std::move(spec));
  adapters_ = plan;
  return h;
}

ParameterStore::ParameterStore(const ParameterList& list, DType dtype, const Sharding& sharding,
                               const PackingConfig& packing)
    : specs_(list.specs()),
      dtype_(dtype),
      ranges_(list.specs().size()),
      written_(list.specs().size(), false),
      sharding_(sharding) {
  TRIREME_CHECK(sharding.stage >= 0 && sharding.stage <= 3, "ZeRO stage ", sharding.stage,
                ", expected 0 to 3");
  if (packing.nf4) {
    for (ParameterSpec& spec : specs_) spec.packed = spec.linear && !is_trained(spec.region);
    packed_ = std::make_unique<PackedWeights>(specs_, packing.double_quantization);
  }
  if (packing.blocks.has_value()) {
    TRIREME_CHECK(!packing.nf4 && sharding.stage < 3, "block-quantized weights are not sharded");
    for (ParameterSpec& spec : specs_) spec.packed = !spec.adapter && (spec.linear || spec.head);
    blocks_ = std::make_unique<QuantizedWeights>(specs_, *packing.blocks);
  }
  for (int region = 0; region < kRegions; ++region) place(static_cast<Region>(region));
  cut_tiles();
}

ParameterStore::~ParameterStore() = default;

void ParameterStore::place(Region region) {
  const int blocks = specs_.empty() ? 0 : specs_.back().block + 1;
  std::vector<FlatRange>& tiles = block_ranges_[static_cast<size_t>(region)];
  block_parameters_.resize(static_cast<size_t>(blocks));
  size_t h = 0;
  for (int block = 0; block < blocks; ++block) {
    FlatRange tile{flat_size_, flat_size_};
    for (; h < specs_.size() && specs_[h].block == block; ++h) {
      if (specs_[h].region != region) continue;
      if (specs_[h].packed) {
        count_ += specs_[h].local_shape().numel();
        continue;
      }
      if (!specs_[h].fused_with_previous) flat_size_ = round_up(flat_size_, kAlignment);
      const int64_t size = specs_[h].local_shape().numel();
      ranges_[h] = {flat_size_, checked_add(flat_size_, size)};
      by_offset_.push_back(static_cast<ParamHandle>(h));
      block_parameters_[static_cast<size_t>(block)].push_back(static_cast<ParamHandle>(h));
      flat_size_ = ranges_[h].end;
      count_ += size;
    }
    flat_size_ = round_up(flat_size_, kAlignment);
    tile.end = flat_size_;
    tiles.push_back(tile);
  }
}

void ParameterStore::cut_tiles() {
  for (int r = 0; r < kRegions; ++r)
    for (int block = 0; block < blocks(); ++block) {
      const auto region = static_cast<Region>(r);
      const FlatRange whole = block_range(block, region);
      std::vector<int64_t> cuts{whole.begin};
      for (const PartialRange& part : partial_ranges(block)) {
        const bool inside = part.range.begin >= whole.begin && part.range.end <= whole.end;
        if (part.sum != PartialSum::kTiedStages || !inside) continue;
        cuts.push_back(part.range.begin);
        cuts.push_back(round_up(part.range.end, kAlignment));
      }
      cuts.push_back(whole.end);
      for (size_t i = 0; i + 1 < cuts.size(); ++i)
        if (cuts[i] < cuts[i + 1]) tiles_.push_back({{cuts[i], cuts[i + 1]}, block, region});
    }
  std::vector<FlatRange> all, mine;
  size_t trained = 0;
  for (const Tile& tile : tiles_) {
    const GroupCoord& coord = sharding_.of(tile.region);
    const Piece piece = piece_of(tile.range.size(), coord.size, coord.index);
    all.push_back(tile.range);
    mine.push_back({tile.range.begin + piece.begin, tile.range.begin + piece.end});
    if (is_trained(tile.region)) trained = all.size();
  }
  whole_ = ShardMap(all);
  owned_ = ShardMap(mine);
  all.resize(trained);
  mine.resize(trained);
  trained_ = ShardMap(all);
  owned_trained_ = ShardMap(mine);
}

std::vector<Tile> ParameterStore::block_tiles(int block) const {
  std::vector<Tile> out;
  for (const Tile& tile : tiles_)
    if (tile.block == block) out.push_back(tile);
  return out;
}

void ParameterStore::attach(const Groups& groups, Ctx& ctx, GatherOptions options) {
  arena_ = &ctx.arena;
  if (sharding_.stage >= 2)
    block_gradients_ =
        std::make_unique<StoreBlockBuffers>("block gradients", gradient_dtype(), blocks());
  if (sharding_.stage >= 3)
    gather_ = std::make_unique<StoreBlockGather>(groups, *this, ctx, std::move(options));
}

void ParameterStore::acquire(StoreBlockPass block, StoreBlockPass next) {
  if (sharding_.stage < 3) return;
  TRIREME_CHECK(gather_ != nullptr, "a sharded store is not attached to groups");
  gather_->acquire(block, next);
}

void ParameterStore::release(int block) {
  if (gather_ != nullptr) gather_->release(block);
}

FlatRange ParameterStore::region_range(Region region) const {
  const std::vector<FlatRange>& tiles = block_ranges_[static_cast<size_t>(region)];
  return tiles.empty() ? FlatRange{} : FlatRange{tiles.front().begin, tiles.back().end};
}

std::vector<PartialRange> ParameterStore::partial_ranges(int block) const {
  std::vector<PartialRange> out;
  for (const ParamHandle h : block_parameters_[static_cast<size_t>(block)]) {
    const ParameterSpec& spec = specs_[static_cast<size_t>(h)];
    if (spec.partial == PartialSum::kNone || !trained(h)) continue;
    const bool joins =
        !out.empty() && out.back().sum == spec.partial && out.back().range.end == range(h).begin;
    if (joins)
      out.back().range.end = range(h).end;
    else
      out.push_back({spec.partial, range(h)});
  }
  return out;
}

std::vector<FlatRange> ParameterStore::counted_ranges() const {
  std::vector<FlatRange> out;
  const ParameterSpec* before = nullptr;
  for (const ParamHandle h : by_offset_) {
    const ParameterSpec& spec = specs_[static_cast<size_t>(h)];
    // The padding between neighbours is zero, so joining across it gives few long ranges. Not
    // across another rank's copy, which is not zero, nor across regions, which are sharded over
    // different ranks.
    const bool joins = before != nullptr && before->copy == 0 && before->region == spec.region;
    before = &spec;
    if (spec.copy != 0 || !trained(h)) continue;
    if (joins)
      out.back().end = range(h).end;
    else
      out.push_back(range(h));
  }
  return out;
}

void ParameterStore::allocate(Ctx& ctx, bool with_gradients) {
  values_ = Buffer("parameters", value_bytes() - packed_bytes(), ctx.memory());
  if (packed_ != nullptr) packed_->allocate(ctx);
  if (blocks_ != nullptr) blocks_->allocate(ctx);
  if (gather_ != nullptr) gather_->allocate(ctx);
  if (with_gradients) gradients_ = Buffer("gradients", gradient_bytes(), ctx.memory());
  if (ctx.gpu == nullptr) return;
  // Alignment padding is updated, summed and saved like the rest. Host memory is zero-filled
  // already.
  fill_zero(ctx, flat_values());
  if (with_gradients) fill_zero(ctx, flat_gradients());
}

void ParameterStore::check_fused(ParamHandle first, ParamHandle last) const {
  TRIREME_CHECK(first >= 0 && first <= last && last < static_cast<int>(specs_.size()),
                "parameters ", first, " .. ", last, " of ", specs_.size());
  for (ParamHandle h = first + 1; h <= last; ++h)
    TRIREME_CHECK(specs_[static_cast<size_t>(h)].fused_with_previous,
                  specs_[static_cast<size_t>(h)].name, " is not fused with its predecessor");
}

int64_t ParameterStore::packed_bytes() const {
  return (packed_ == nullptr ? 0 : packed_->bytes()) + (blocks_ == nullptr ? 0 : blocks_->bytes());
}

int64_t ParameterStore::copy_bytes() const {
  return gather_ == nullptr ? 0 : gather_->copy_bytes();
}

void ParameterStore::pack(Ctx& ctx, ParamHandle h, const ReadBox& read) {
  TRIREME_CHECK(packed(h), specs_[static_cast<size_t>(h)].name, " is not packed");
  if (blocks_ != nullptr) return blocks_->pack(ctx, h, read);
  packed_->pack(ctx, h, read);
}

std::vector<QuantizedMatrix> ParameterStore::quantized_matrices(ParamHandle first,
                                                                ParamHandle last) const {
  check_fused(first, last);
  TRIREME_CHECK(in_blocks(first), specs_[static_cast<size_t>(first)].name,
                " is not block-quantized");
  return blocks_->matrices(first, last);
}

void ParameterStore::unpack(Ctx& ctx, ParamHandle first, ParamHandle last, const Tensor& w) const {
  check_fused(first, last);
  check_shape("unpack", "w", w, shape(first, last));
  int64_t row = 0;
  for (ParamHandle h = first; h <= last; ++h) {
    const int64_t end = row + specs_[static_cast<size_t>(h)].local_shape()[0];
    if (blocks_ != nullptr)
      decode_blocks(ctx, w.slice(0, row, end), blocks_->matrix(h));
    else
      packed_->unpack(ctx, h, w.slice(0, row, end));
    row = end;
  }
}

Shape ParameterStore::shape(ParamHandle first, ParamHandle last) const {
  const Shape shape = specs_[static_cast<size_t>(first)].local_shape();
  if (first == last) return shape;
  int64_t elements = 0;
  for (ParamHandle h = first; h <= last; ++h)
    elements += specs_[static_cast<size_t>(h)].local_shape().numel();
  if (shape.rank() == 1) return Shape{elements};
  TRIREME_CHECK(shape.rank() == 2, "fused parameter ", specs_[static_cast<size_t>(first)].name,
                " has shape ", shape);
  return Shape{elements / shape[1], shape[1]};
}

Tensor ParameterStore::value(ParamHandle first, ParamHandle last) const {
  check_fused(first, last);
  TRIREME_CHECK(!packed(first), specs_[static_cast<size_t>(first)].name,
                " is quantized and has no value()");
  const Shape shape = this->shape(first, last);
  const FlatRange part{range(first).begin, range(last).end};
  if (sharding_.stage >= 3) {
    const int block = block_of(first);
    TRIREME_CHECK(gather_ != nullptr && gather_->holds(block),
                  specs_[static_cast<size_t>(first)].name, " is used while its block is released");
    return gather_->view(block, part).reshape(shape);
  }
  // Before allocate() (a planning run) the view has a shape but no memory.
  if (values_.data() == nullptr) return Tensor(nullptr, dtype_, shape);
  return values_.tensor(dtype_, shape, part.begin * dtype_size(dtype_));
}

GradientSlot ParameterStore::gradient(ParamHandle first, ParamHandle last) {
  check_fused(first, last);
  TRIREME_CHECK(trained(first), specs_[static_cast<size_t>(first)].name, " is frozen");
  const Shape shape = this->shape(first, last);
  const DType dtype = gradient_dtype();
  const int block = block_of(first);
  if (sharding_.stage >= 2) open_gradients(block);
  // Tracked even without memory: a planning run must request the same products.
  const bool accumulate = written_[static_cast<size_t>(first)];
  for (ParamHandle h = first; h <= last; ++h) {
    TRIREME_CHECK(written_[static_cast<size_t>(h)] == accumulate,
                  specs_[static_cast<size_t>(h)].name, " was written apart from its fused matrix");
    written_[static_cast<size_t>(h)] = true;
  }
  if (sharding_.stage >= 2) {
    const FlatRange part{range(first).begin, range(last).end};
    return {block_gradients_->view(block, part).reshape(shape), accumulate};
  }
  if (gradients_.data() == nullptr) return {Tensor(nullptr, dtype, shape), accumulate};
  return {gradients_.tensor(dtype, shape, range(first).begin * dtype_size(dtype)), accumulate};
}

void ParameterStore::expect_gradients(ParamHandle h) {
  if (sharding_.stage >= 2 && trained(h)) open_gradients(block_of(h));
}

Tensor ParameterStore::flat_values() const {
  return values_.tensor(dtype_, Shape{value_map().size()});
}

Tensor ParameterStore::flat_gradients() const {
  return gradients_.tensor(gradient_dtype(), Shape{gradient_map().size()});
}

Tensor ParameterStore::whole_gradients(int block, const FlatRange& part) const {
  if (sharding_.stage >= 2) return block_gradients_->view(block, part);
  return flat_gradients().slice(0, part.begin, part.end);
}

void ParameterStore::open_gradients(int block) {
  TRIREME_CHECK(block_gradients_ != nullptr, "a sharded store is not attached to groups");
  if (block_gradients_->holds(block)) return;
  block_gradients_->open(*arena_, block,
                         {block_range(block, Region::kDense), block_range(block, Region::kExpert)});
}

WholeStoreBlock ParameterStore::take_gradients(int block) {
  for (size_t h = 0; h < specs_.size(); ++h)
    if (specs_[h].block == block) written_[h] = false;
  return block_gradients_->take(block);
}

namespace {

// Writes value(i) to data for i < n.
template <class Value>
void fill_values(const Tensor& data, int threads, Value&& value) {
  constexpr int64_t kChunk = 4096;  // elements per task of a thread
  const int64_t n = data.numel();
  dispatch_float("initialize", data.dtype(), [&]<class T>() {
    T* out = data.as<T>();
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t chunk = 0; chunk < ceil_div(n, kChunk); ++chunk)
      for (int64_t i = chunk * kChunk; i < std::min(n, (chunk + 1) * kChunk); ++i) {
        const double v = value(i);
        if constexpr (std::is_same_v<T, double>)
          out[i] = v;
        else
          out[i] = T(static_cast<float>(v));
      }
  });
}

}  // namespace

void ParameterStore::initialize(Ctx& ctx, uint64_t seed, bool frozen) {
  for (size_t h = 0; h < specs_.size(); ++h) {
    const ParameterSpec& spec = specs_[h];
    if (!frozen && !is_trained(spec.region)) continue;
    const RandomKey key{seed, stream_id(spec.name)};
    const auto initial = [&](int64_t index) {
      if (spec.init != InitKind::kNormal) return spec.init == InitKind::kOnes ? 1.0 : 0.0;
      return spec.init_std * philox_normal(key, static_cast<uint64_t>(index));
    };
    if (spec.packed) {
      pack(ctx, static_cast<ParamHandle>(h),
           [&](const TensorBox& box, int64_t begin, const Tensor& piece) {
             ParameterSpec part = spec;
             part.box = box;
             ElementIndex index = part.element_index();
             index.offset = begin;
             fill_values(piece, ctx.threads, [&](int64_t i) { return initial(index.of(i)); });
           });
      continue;
    }
    value_map().for_each(ranges_[h], [&](const FlatRange& part, int64_t offset) {
      ElementIndex index = spec.element_index();
      index.offset = part.begin - ranges_[h].begin;
      const Tensor values = flat_values().slice(0, offset, offset + part.size());
      if (spec.init == InitKind::kNormal)
        return fill_normal(ctx, values, key, spec.init_std, index);
      fill_from_host(ctx, values, [&](const Tensor& piece, int64_t first) {
        fill_values(piece, ctx.threads, [&](int64_t i) { return initial(index.of(first + i)); });
      });
    });
  }
}

void ParameterStore::begin_gradients() { written_.assign(written_.size(), false); }

void ParameterStore::finish_gradients(Ctx& ctx, int block) {
  const bool in_arena = sharding_.stage >= 2;
  if (in_arena) open_gradients(block);
  const bool planning = in_arena ? arena_->planning() : gradients_.data() == nullptr;
  const auto zero = [&](const FlatRange& part) {
    if (part.size() == 0 || planning) return;
    fill_zero(ctx, whole_gradients(block, part));
  };
  for (const Region region : kTrainedRegions) {
    // Padding is reduced with the rest, and arena memory is not initialized.
    const FlatRange whole = block_range(block, region);
    int64_t end = whole.begin;
    for (const ParamHandle h : by_offset_) {
      const ParameterSpec& spec = specs_[static_cast<size_t>(h)];
      if (spec.block != block || spec.region != region) continue;
      if (in_arena) zero({end, range(h).begin});
      if (!written_[static_cast<size_t>(h)]) zero(range(h));
      written_[static_cast<size_t>(h)] = true;
      end = range(h).end;
    }
    if (in_arena) zero({end, whole.end});
  }
}

Tensor ParameterStore::view_in(const Tensor& flat, ParamHandle h) const {
  TRIREME_CHECK(flat.numel() == flat_size_, "a flat tensor has the shape ", flat.shape(),
                ", expected ", flat_size_, " elements");
  const FlatRange r = range(h);
  return flat.slice(0, r.begin, r.end).reshape(specs_[static_cast<size_t>(h)].local_shape());
}

std::string ParameterStore::element_name(int64_t flat_index) const {
  for (size_t h = 0; h < specs_.size(); ++h)
    if (flat_index >= ranges_[h].begin && flat_index < ranges_[h].end)
      return concat(specs_[h].name, "[",
                    specs_[h].element_index().of(flat_index - ranges_[h].begin), "]");
  return concat("padding element ", flat_index);
}

}  // namespace trireme
