#include "parallel/parameter_store.h"

#include <algorithm>
#include <cstring>

namespace trireme {
namespace {

constexpr int64_t kAlignment = 64;  // elements: a cache line for every element type

// Flat index in the logical tensor of the first element of row `row` of the box (its last dimension
// is the row).
int64_t first_of_row(const ParameterSpec& spec, int64_t row) {
  const bool whole = spec.box.extent.empty();
  const int last = spec.shape.rank() - 1;
  const auto start = [&](int d) { return whole ? 0 : spec.box.start[static_cast<size_t>(d)]; };
  const Shape local = spec.local_shape();
  int64_t index = start(last);
  int64_t stride = spec.shape[last];
  for (int d = last - 1; d >= 0; --d) {
    index += (row % local[d] + start(d)) * stride;
    row /= local[d];
    stride *= spec.shape[d];
  }
  return index;
}

}  // namespace

Shape ParameterSpec::local_shape() const {
  if (box.extent.empty()) return shape;
  return Shape(std::span<const int64_t>(box.extent));
}

ParamHandle ParameterList::add(ParameterSpec spec) {
  TRIREME_CHECK(specs_.empty() || spec.block >= specs_.back().block, "parameter ", spec.name,
                " of block ", spec.block, " is listed after block ", specs_.back().block);
  TRIREME_CHECK(
      !spec.fused_with_previous || (!specs_.empty() && specs_.back().block == spec.block &&
                                    specs_.back().region == spec.region),
      "parameter ", spec.name, " is fused with one of another block or region");
  specs_.push_back(std::move(spec));
  return static_cast<ParamHandle>(specs_.size()) - 1;
}

ParameterStore::ParameterStore(const ParameterList& list, DType dtype)
    : specs_(list.specs()),
      dtype_(dtype),
      ranges_(list.specs().size()),
      written_(list.specs().size(), false) {
  for (int region = 0; region < kRegions; ++region) place(static_cast<Region>(region));
}

void ParameterStore::place(Region region) {
  const int blocks = specs_.empty() ? 0 : specs_.back().block + 1;
  std::vector<FlatRange>& tiles = block_ranges_[static_cast<size_t>(region)];
  size_t h = 0;
  for (int block = 0; block < blocks; ++block) {
    FlatRange tile{flat_size_, flat_size_};
    for (; h < specs_.size() && specs_[h].block == block; ++h) {
      if (specs_[h].region != region) continue;
      if (!specs_[h].fused_with_previous) flat_size_ = round_up(flat_size_, kAlignment);
      const int64_t size = specs_[h].local_shape().numel();
      ranges_[h] = {flat_size_, checked_add(flat_size_, size)};
      by_offset_.push_back(static_cast<ParamHandle>(h));
      flat_size_ = ranges_[h].end;
      count_ += size;
    }
    flat_size_ = round_up(flat_size_, kAlignment);
    tile.end = flat_size_;
    tiles.push_back(tile);
  }
}

FlatRange ParameterStore::region_range(Region region) const {
  const std::vector<FlatRange>& tiles = block_ranges_[static_cast<size_t>(region)];
  return tiles.empty() ? FlatRange{} : FlatRange{tiles.front().begin, tiles.back().end};
}

std::vector<PartialRange> ParameterStore::partial_ranges(int block) const {
  std::vector<PartialRange> out;
  for (const ParamHandle h : by_offset_) {
    const ParameterSpec& spec = specs_[static_cast<size_t>(h)];
    if (spec.block != block || spec.partial == PartialSum::kNone) continue;
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
  for (const ParamHandle h : by_offset_) {
    if (specs_[static_cast<size_t>(h)].copy != 0) continue;
    // The padding between neighbours is zero: joining across it makes few long ranges.
    const bool joins = !out.empty() && round_up(out.back().end, kAlignment) >= range(h).begin;
    if (joins)
      out.back().end = range(h).end;
    else
      out.push_back(range(h));
  }
  return out;
}

void ParameterStore::allocate(bool with_gradients) {
  values_ = Buffer("parameters", value_bytes());
  if (with_gradients) gradients_ = Buffer("gradients", gradient_bytes());
}

void ParameterStore::check_fused(ParamHandle first, ParamHandle last) const {
  TRIREME_CHECK(first >= 0 && first <= last && last < static_cast<int>(specs_.size()),
                "parameters ", first, " .. ", last, " of ", specs_.size());
  for (ParamHandle h = first + 1; h <= last; ++h)
    TRIREME_CHECK(specs_[static_cast<size_t>(h)].fused_with_previous,
                  specs_[static_cast<size_t>(h)].name, " is not fused with its predecessor");
}

Shape ParameterStore::fused_shape(ParamHandle first, ParamHandle last) const {
  const Shape shape = specs_[static_cast<size_t>(first)].local_shape();
  if (first == last) return shape;
  const int64_t elements = range(last).end - range(first).begin;
  if (shape.rank() == 1) return Shape{elements};
  TRIREME_CHECK(shape.rank() == 2, "fused parameter ", specs_[static_cast<size_t>(first)].name,
                " has shape ", shape);
  return Shape{elements / shape[1], shape[1]};
}

Tensor ParameterStore::value(ParamHandle first, ParamHandle last) const {
  check_fused(first, last);
  // Before allocate() (a planning run) the view has a shape but no memory.
  const Shape shape = fused_shape(first, last);
  if (values_.data() == nullptr) return Tensor(nullptr, dtype_, shape);
  return values_.tensor(dtype_, shape, range(first).begin * dtype_size(dtype_));
}

GradientSlot ParameterStore::gradient(ParamHandle first, ParamHandle last) {
  check_fused(first, last);
  const Shape shape = fused_shape(first, last);
  const DType dtype = gradient_dtype();
  // Tracked before there is memory too: a planning run must ask for the same products.
  const bool accumulate = written_[static_cast<size_t>(first)];
  for (ParamHandle h = first; h <= last; ++h) {
    TRIREME_CHECK(written_[static_cast<size_t>(h)] == accumulate,
                  specs_[static_cast<size_t>(h)].name, " was written apart from its fused matrix");
    written_[static_cast<size_t>(h)] = true;
  }
  if (gradients_.data() == nullptr) return {Tensor(nullptr, dtype, shape), accumulate};
  return {gradients_.tensor(dtype, shape, range(first).begin * dtype_size(dtype)), accumulate};
}

Tensor ParameterStore::flat_values() const { return values_.tensor(dtype_, Shape{flat_size_}); }

Tensor ParameterStore::flat_gradients() const {
  return gradients_.tensor(gradient_dtype(), Shape{flat_size_});
}

void ParameterStore::initialize(uint64_t seed, int threads) {
  for (size_t h = 0; h < specs_.size(); ++h) {
    const ParameterSpec& spec = specs_[h];
    const Tensor view = value(static_cast<ParamHandle>(h));
    const RandomKey key{seed, stream_id(spec.name)};
    // A box is rows of `width` elements; row r of it begins at a global element.
    const Shape local = spec.local_shape();
    const int64_t width = local[local.rank() - 1];
    const int64_t rows = local.numel() == 0 ? 0 : local.numel() / width;
    dispatch_float("initialize", dtype_, [&]<class T>() {
      T* data = view.as<T>();
#pragma omp parallel for num_threads(threads) schedule(static)
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t first = first_of_row(spec, r);
        for (int64_t i = 0; i < width; ++i) {
          double v = spec.init == InitKind::kOnes ? 1.0 : 0.0;
          if (spec.init == InitKind::kNormal)
            v = spec.init_std * philox_normal(key, static_cast<uint64_t>(first + i));
          if constexpr (std::is_same_v<T, double>)
            data[r * width + i] = v;
          else
            data[r * width + i] = T(static_cast<float>(v));
        }
      }
    });
  }
}

void ParameterStore::begin_gradients() { written_.assign(written_.size(), false); }

void ParameterStore::finish_gradients(int block) {
  for (size_t h = 0; h < specs_.size(); ++h) {
    if (specs_[h].block != block || written_[h] || gradients_.data() == nullptr) continue;
    const Tensor view = view_in(flat_gradients(), static_cast<ParamHandle>(h));
    std::memset(view.raw(), 0, static_cast<size_t>(view.bytes()));
    written_[h] = true;
  }
}

Tensor ParameterStore::view_in(const Tensor& flat, ParamHandle h) const {
  const FlatRange r = range(h);
  return flat.slice(0, r.begin, r.end).reshape(specs_[static_cast<size_t>(h)].local_shape());
}

std::string ParameterStore::element_name(int64_t flat_index) const {
  for (size_t h = 0; h < specs_.size(); ++h)
    if (flat_index >= ranges_[h].begin && flat_index < ranges_[h].end)
      return concat(specs_[h].name, "[", flat_index - ranges_[h].begin, "]");
  return concat("padding element ", flat_index);
}

}  // namespace trireme
