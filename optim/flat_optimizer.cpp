#include "optim/flat_optimizer.h"

#include <algorithm>
#include <cstring>

#include "engine/io/checkpoint_manifest.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/optimizer_step.h"

namespace trireme {

FlatOptimizer::FlatOptimizer(const OptimizerConfig& config, const OffloadConfig& offload,
                             ParameterStore& store, uint64_t seed)
    : config_(config),
      store_(store),
      seed_(seed),
      storage_(kinds(), store.state_map().size(), offload) {
  // Alignment padding is in no segment: it stays zero.
  for (ParamHandle h = 0; h < std::ssize(store.specs()); ++h)
    store.state_map().for_each(store.range(h), [&](const FlatRange& part, int64_t offset) {
      segments_.push_back({part, offset, h});
    });
  std::ranges::sort(segments_, {}, &Segment::offset);
}

bool FlatOptimizer::has_master() const {
  const DType p = store_.dtype();
  return (p == DType::kBF16 || p == DType::kF16) && config_.master_weights;
}

bool FlatOptimizer::has_first_moment() const {
  return config_.type != OptimizerType::kSgd || config_.momentum > 0;
}

bool FlatOptimizer::has_second_moment() const { return config_.type != OptimizerType::kSgd; }

DType FlatOptimizer::state_dtype() const {
  return store_.dtype() == DType::kF64 ? DType::kF64 : config_.state_dtype;
}

std::vector<StateStorage::Kind> FlatOptimizer::kinds() const {
  std::vector<StateStorage::Kind> out;
  if (has_master()) out.push_back({kKindMaster, DType::kF32});
  if (has_second_moment()) {
    out.push_back({kKindExpAvg, state_dtype()});
    out.push_back({kKindExpAvgSq, state_dtype()});
  } else if (has_first_moment()) {
    out.push_back({kKindMomentum, state_dtype()});
  }
  return out;
}

// f(segment) for what of the segments lies in a window of the states.
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
    if (decided.skip != 0) return;  // nothing to read from a file either
  }                                 // on a GPU the kernels look for themselves
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
  const Tensor param = cut(store_.flat_values(), store_.value_map());
  const Tensor grad = cut(store_.flat_gradients(), store_.gradient_map());
  const Tensor master = has_master() ? states[0] : Tensor();
  const Tensor first = has_first_moment() ? states[kinds_before_moments()] : Tensor();
  const ParameterSpec& spec = store_.specs()[static_cast<size_t>(part.parameter)];
  // The same random bits for an element wherever it lies.
  const uint64_t stream = substream(stream_id("stochastic_rounding"), stream_id(spec.name));
  const RandomKey rounding{seed_, stream};
  ElementIndex index = spec.element_index();
  index.offset = part.flat.begin - store_.range(part.parameter).begin;
  const double decay = spec.decay ? config_.weight_decay : 0.0;
  if (config_.type == OptimizerType::kSgd) {
    sgd_step(ctx, param, master, grad, first, scalars,
             {.momentum = config_.momentum,
              .weight_decay = decay,
              .nesterov = config_.nesterov,
              .rounding = rounding,
              .index = index});
  } else {
    adamw_step(ctx, param, master, grad, first, states[kinds_before_moments() + 1], scalars,
               {.beta1 = config_.beta1,
                .beta2 = config_.beta2,
                .eps = config_.eps,
                .weight_decay = decay,
                .decoupled = config_.type == OptimizerType::kAdamW,
                .rounding = rounding,
                .index = index});
  }
}

std::vector<FlatOptimizer::State> FlatOptimizer::states() const {
  std::vector<State> out;
  for (size_t k = 0; k < storage_.kinds().size(); ++k)
    out.push_back({storage_.kinds()[k].name, storage_.whole(k)});
  return out;
}

}  // namespace trireme
