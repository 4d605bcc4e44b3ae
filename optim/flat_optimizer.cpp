#include "optim/flat_optimizer.h"

#include "engine/io/checkpoint_manifest.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/optimizer_step.h"

namespace trireme {

FlatOptimizer::FlatOptimizer(const OptimizerConfig& config, ParameterStore& store, uint64_t seed)
    : config_(config), store_(store), seed_(seed) {
  // Segments tile the whole range: alignment padding belongs to the segment before it and stays
  // zero, because its gradient is zero and a decayed zero is zero.
  for (size_t h = 0; h < store.specs().size(); ++h) {
    const FlatRange range = store.range(static_cast<ParamHandle>(h));
    const bool decay = store.specs()[h].decay;
    if (!segments_.empty()) segments_.back().range.end = range.begin;
    if (!segments_.empty() && segments_.back().decay == decay) continue;
    segments_.push_back({range, decay});
  }
  if (!segments_.empty()) segments_.back().range.end = store.flat_size();
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

int64_t FlatOptimizer::state_bytes() const {
  const int64_t n = store_.flat_size();
  const int64_t moments = (has_first_moment() ? 1 : 0) + (has_second_moment() ? 1 : 0);
  return n * (has_master() ? 4 : 0) + n * moments * dtype_size(state_dtype());
}

void FlatOptimizer::allocate() {
  const int64_t n = store_.flat_size();
  const int64_t bytes = n * dtype_size(state_dtype());
  if (has_master()) master_ = Buffer("master weights", n * dtype_size(DType::kF32));
  if (has_first_moment()) first_ = Buffer("first moment", bytes);
  if (has_second_moment()) second_ = Buffer("second moment", bytes);
}

void FlatOptimizer::initialize(Ctx& ctx) {
  if (has_master())
    cast(ctx, master_.tensor(DType::kF32, Shape{store_.flat_size()}), store_.flat_values());
}

void FlatOptimizer::update(Ctx& ctx, const ConstTensor& scalars) {
  for (const Segment& segment : segments_) update_segment(ctx, scalars, segment);
}

void FlatOptimizer::update_segment(Ctx& ctx, const ConstTensor& scalars, const Segment& segment) {
  const auto part = [&](const Buffer& buffer, DType dtype) {
    if (buffer.data() == nullptr) return Tensor();
    return buffer.tensor(dtype, Shape{store_.flat_size()})
        .slice(0, segment.range.begin, segment.range.end);
  };
  const Tensor param = store_.flat_values().slice(0, segment.range.begin, segment.range.end);
  const Tensor grad = store_.flat_gradients().slice(0, segment.range.begin, segment.range.end);
  const Tensor master = part(master_, DType::kF32);
  const Tensor first = part(first_, state_dtype());
  const RandomKey rounding{seed_, stream_id("stochastic_rounding")};
  const double decay = segment.decay ? config_.weight_decay : 0.0;
  if (config_.type == OptimizerType::kSgd) {
    sgd_step(ctx, param, master, grad, first, scalars,
             {.momentum = config_.momentum,
              .weight_decay = decay,
              .nesterov = config_.nesterov,
              .rounding = rounding,
              .element0 = segment.range.begin});
  } else {
    adamw_step(ctx, param, master, grad, first, part(second_, state_dtype()), scalars,
               {.beta1 = config_.beta1,
                .beta2 = config_.beta2,
                .eps = config_.eps,
                .weight_decay = decay,
                .decoupled = config_.type == OptimizerType::kAdamW,
                .rounding = rounding,
                .element0 = segment.range.begin});
  }
}

std::vector<FlatOptimizer::State> FlatOptimizer::states() const {
  std::vector<State> out;
  const Shape shape{store_.flat_size()};
  if (has_master()) out.push_back({kKindMaster, master_.tensor(DType::kF32, shape)});
  if (has_second_moment()) {
    out.push_back({kKindExpAvg, first_.tensor(state_dtype(), shape)});
    out.push_back({kKindExpAvgSq, second_.tensor(state_dtype(), shape)});
  } else if (has_first_moment()) {
    out.push_back({kKindMomentum, first_.tensor(state_dtype(), shape)});
  }
  return out;
}

}  // namespace trireme
