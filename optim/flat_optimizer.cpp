#include "optim/flat_optimizer.h"

#include <algorithm>
#include <cstring>

#include "engine/core/error.h"
#include "engine/io/checkpoint_manifest.h"
#include "engine/ops/optimizer/optimizer_scalars.h"
#include "engine/ops/rows/elementwise.h"

namespace trireme {

FlatOptimizer::FlatOptimizer(const OptimizerConfig& config, const OffloadConfig& offload,
                             ParameterStore& store, uint64_t seed)
    : config_(config),
      store_(store),
      seed_(seed),
      storage_(kinds(), store.state_map().size(), offload) {
  // Alignment padding belongs to no segment: it stays zero.
  for (ParamHandle h = 0; h < std::ssize(store.specs()); ++h)
    store.state_map().for_each(store.range(h), [&](const FlatRange& part, int64_t offset) {
      segments_.push_back({part, offset, h});
    });
  std::ranges::sort(segments_, {}, &Segment::offset);
  check_matrices(offload);
}

bool FlatOptimizer::has_master() const {
  const DType p = store_.dtype();
  return (p == DType::kBF16 || p == DType::kF16) && config_.master_weights;
}

std::vector<StateStorage::Kind> FlatOptimizer::kinds() const {
  const DType dtype = store_.dtype() == DType::kF64 ? DType::kF64 : config_.state_dtype;
  std::vector<StateStorage::Kind> out = config_.rule->states(dtype);
  if (has_master()) out.insert(out.begin(), {kKindMaster, DType::kF32});
  return out;
}

// Matrices are split by ZeRO shards, by tensor parallelism and by the windows of a state file.
void FlatOptimizer::check_matrices(const OffloadConfig& offload) const {
  if (!config_.rule->needs_matrices()) return;
  if (offload.device == OffloadDevice::kFile)
    fail_input(
        "zero_optimization.offload_optimizer.device: nvme is not supported with optimizer.type ",
        config_.rule->name(),
        ", which updates whole matrices (a file is read in windows); supported: none, cpu");
  for (const Segment& part : segments_) {
    const ParameterSpec& spec = store_.specs()[static_cast<size_t>(part.parameter)];
    if (spec.shape.rank() < 2 || part.flat.size() == spec.shape.numel()) continue;
    fail_input("optimizer.type: ", config_.rule->name(),
               " updates whole matrices, but this rank holds only ", part.flat.size(), " of the ",
               spec.shape.numel(), " elements of ", spec.name,
               "; use zero_optimization.stage 0 and tensor_model_parallel_size 1");
  }
}

// Calls f(segment) for the parts of segments that are inside a window of the states.
template <class F>
void FlatOptimizer::for_each_part(const FlatRange& window, F&& f) const {
  const auto end_of = [](const Segment& s) { return s.offset + s.flat.size(); };
  auto at = std::ranges::upper_bound(segments_, window.begin, {}, end_of);
  for (; at != segments_.end() && at->offset < window.end; ++at) {
    const int64_t begin = std::max(window.begin, at->offset);
    const int64_t end = std::min(window.end, end_of(*at));
    const int64_t flat = at->flat.begin + (begin - at->offset);
    f(Segment{{flat, flat + (end - begin)}, begin, at->parameter});
  }
}

void FlatOptimizer::initialize(Ctx& ctx) {
  if (!has_master()) return;
  storage_.for_each_window([&](const FlatRange& window, std::span<const Tensor> states) {
    for_each_part(window, [&](const Segment& part) {
      const int64_t at = part.offset - window.begin,
                    value = store_.value_map().offset(part.flat.begin);
      cast(ctx, states[0].slice(0, at, at + part.flat.size()),
           store_.flat_values().slice(0, value, value + part.flat.size()));
    });
  });
}

void FlatOptimizer::update(Ctx& ctx, const ConstTensor& scalars) {
  if (scalars.device() == DeviceType::kCpu) {
    StepScalars decided;
    std::memcpy(&decided, scalars.raw(), sizeof decided);
    if (decided.skip != 0) return;  // saves reading a state file
  }                                 // on a GPU the kernels read the flag
  storage_.for_each_window([&](const FlatRange& window, std::span<const Tensor> states) {
    for_each_part(window, [&](const Segment& part) {
      std::vector<Tensor> mine;
      const int64_t at = part.offset - window.begin;
      for (const Tensor& state : states) mine.push_back(state.slice(0, at, at + part.flat.size()));
      update_part(ctx, scalars, part, mine);
    });
  });
}

void FlatOptimizer::update_part(Ctx& ctx, const ConstTensor& scalars, const Segment& part,
                                std::span<const Tensor> states) {
  const auto cut = [&](const Tensor& array, const ShardMap& map) {
    const int64_t at = map.offset(part.flat.begin);
    return array.slice(0, at, at + part.flat.size());
  };
  const ParameterSpec& spec = store_.specs()[static_cast<size_t>(part.parameter)];
  // An element gets the same random bits in every layout.
  const uint64_t stream = substream(stream_id("stochastic_rounding"), stream_id(spec.name));
  ElementIndex index = spec.element_index();
  index.offset = part.flat.begin - store_.range(part.parameter).begin;
  const bool master = has_master();
  config_.rule->update(ctx, {.spec = spec,
                             .param = cut(store_.flat_values(), store_.value_map()),
                             .master = master ? states[0] : Tensor(),
                             .grad = cut(store_.flat_gradients(), store_.gradient_map()),
                             .states = states.subspan(master ? 1 : 0),
                             .scalars = scalars,
                             .weight_decay = spec.decay ? config_.weight_decay : 0.0,
                             .rounding = {seed_, stream},
                             .index = index});
}

std::vector<FlatOptimizer::State> FlatOptimizer::states() const {
  std::vector<State> out;
  for (size_t k = 0; k < storage_.kinds().size(); ++k)
    out.push_back({storage_.kinds()[k].name, storage_.whole(k)});
  return out;
}

Tensor FlatOptimizer::master() const { return has_master() ? storage_.whole(0) : Tensor(); }
Tensor FlatOptimizer::first_moment() const { return storage_.whole(has_master() ? 1 : 0); }

}  // namespace trireme
