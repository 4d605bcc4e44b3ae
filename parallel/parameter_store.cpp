#include "parallel/parameter_store.h"

#include <algorithm>
#include <cstring>

namespace trireme {
namespace {

constexpr int64_t kAlignment = 64;  // elements: a cache line for every element type

}  // namespace

ParamHandle ParameterList::add(ParameterSpec spec) {
  TRIREME_CHECK(specs_.empty() || spec.block >= specs_.back().block, "parameter ", spec.name,
                " of block ", spec.block, " is listed after block ", specs_.back().block);
  specs_.push_back(std::move(spec));
  return static_cast<ParamHandle>(specs_.size()) - 1;
}

ParameterStore::ParameterStore(const ParameterList& list, DType dtype)
    : specs_(list.specs()), dtype_(dtype), written_(list.specs().size(), false) {
  for (const ParameterSpec& spec : specs_) {
    if (!spec.fused_with_previous) flat_size_ = round_up(flat_size_, kAlignment);
    const int64_t size = spec.shape.numel();
    while (static_cast<int>(block_ranges_.size()) <= spec.block)
      block_ranges_.push_back({flat_size_, flat_size_});
    ranges_.push_back({flat_size_, checked_add(flat_size_, size)});
    flat_size_ = ranges_.back().end;
    block_ranges_.back().end = flat_size_;
    count_ += size;
  }
  flat_size_ = round_up(flat_size_, kAlignment);
  // Blocks tile the flat range, alignment padding included, so that buckets cover every element.
  for (size_t b = 0; b < block_ranges_.size(); ++b)
    block_ranges_[b].end = b + 1 < block_ranges_.size() ? block_ranges_[b + 1].begin : flat_size_;
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
  const Shape& shape = specs_[static_cast<size_t>(first)].shape;
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
    dispatch_float("initialize", dtype_, [&]<class T>() {
      T* data = view.as<T>();
      const int64_t n = view.numel();
#pragma omp parallel for num_threads(threads) schedule(static)
      for (int64_t i = 0; i < n; ++i) {
        double v = spec.init == InitKind::kOnes ? 1.0 : 0.0;
        if (spec.init == InitKind::kNormal)
          v = spec.init_std * philox_normal(key, static_cast<uint64_t>(i));
        if constexpr (std::is_same_v<T, double>)
          data[i] = v;
        else
          data[i] = T(static_cast<float>(v));
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
  return flat.slice(0, r.begin, r.end).reshape(specs_[static_cast<size_t>(h)].shape);
}

std::string ParameterStore::element_name(int64_t flat_index) const {
  for (size_t h = 0; h < specs_.size(); ++h)
    if (flat_index >= ranges_[h].begin && flat_index < ranges_[h].end)
      return concat(specs_[h].name, "[", flat_index - ranges_[h].begin, "]");
  return concat("padding element ", flat_index);
}

}  // namespace trireme
