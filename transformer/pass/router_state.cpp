#include "transformer/pass/router_state.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/ops/optimizer/optimizer_step.h"
#include "engine/ops/rows/elementwise.h"
#include "engine/ops/rows/transfer.h"
#include "transformer/families/family.h"

namespace trireme {
namespace {

constexpr int64_t kAlign = 64;

int64_t part_bytes(int64_t layers, int64_t experts) {
  return round_up(layers * experts * dtype_size(DType::kF64), kAlign);
}

// Nearest-rank percentile: the smallest value that at least `share` of the sorted values do not
// exceed.
double percentile(const std::vector<double>& sorted, double share) {
  const auto rank = static_cast<int64_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[static_cast<size_t>(std::clamp<int64_t>(rank, 1, std::ssize(sorted)) - 1)];
}

}  // namespace

RouterState::RouterState(const ModelConfig& config, DType dtype)
    : layers_(config.num_layers),
      experts_(config.moe.experts),
      dtype_(sum_dtype(dtype)),
      moe_(config.moe),
      names_(parameter_names(config)),
      block_("router state", 3 * part_bytes(layers_, experts_)) {}

Tensor RouterState::biases() const { return block_.tensor(dtype_, {layers_, experts_}); }

Tensor RouterState::all_shares() const {
  return block_.tensor(DType::kF64, {layers_, experts_}, part_bytes(layers_, experts_));
}

Tensor RouterState::counts() const {
  return block_.tensor(DType::kF64, {layers_, experts_}, 2 * part_bytes(layers_, experts_));
}

Tensor RouterState::row(const Tensor& of_layers, int layer) const {
  return of_layers.slice(0, layer, layer + 1).reshape({experts_});
}

Tensor RouterState::bias(int layer) const {
  return moe_.selection_bias ? row(used().tensor(dtype_, {layers_, experts_}), layer) : Tensor();
}

ConstTensor RouterState::shares(int layer) const {
  return row(used().tensor(DType::kF64, {layers_, experts_}, part_bytes(layers_, experts_)), layer);
}

void RouterState::place(Ctx& ctx) {
  if (ctx.gpu == nullptr) return;
  if (on_device_.data() == nullptr)
    on_device_ = Buffer("router state", block_.bytes(), ctx.memory());
  const Shape all{block_.bytes()};
  transfer(ctx, on_device_.tensor(DType::kU8, all), block_.tensor(DType::kU8, all));
}

void RouterState::count(Ctx& ctx, int layer, const ConstTensor& counts_of_segments) {
  if (ctx.gpu != nullptr) {
    const Tensor sum =
        row(on_device_.tensor(DType::kF64, {layers_, experts_}, 2 * part_bytes(layers_, experts_)),
            layer);
    for (int64_t s = 0; s < counts_of_segments.size(0); ++s)
      add(ctx, sum, sum, counts_of_segments.slice(0, s, s + 1).reshape({experts_}));
    return;
  }
  auto* total = counts().as<double>() + layer * experts_;
  const auto* added = counts_of_segments.as<double>();
  for (int64_t i = 0; i < counts_of_segments.numel(); ++i) total[i % experts_] += added[i];
}

ExpertLoad RouterState::load_of(int layer) const {
  const auto* first = counts().as<double>() + layer * experts_;
  std::vector<double> sorted(first, first + experts_);
  std::ranges::sort(sorted);
  const double mean =
      std::accumulate(sorted.begin(), sorted.end(), 0.0) / static_cast<double>(experts_);
  return {layer, mean > 0 ? sorted.back() / mean : 0, percentile(sorted, 0.5),
          percentile(sorted, 0.9), percentile(sorted, 0.99)};
}

void RouterState::finish_step(Ctx& ctx, Communicator& data_parallel, Communicator& pipeline,
                              const ConstTensor& scalars) {
  check_shape("router state", "scalars", scalars, {kStepScalarsBytes});
  StepScalars outcome;
  transfer(ctx, Tensor(&outcome, DType::kU8, {kStepScalarsBytes}), scalars);
  if (ctx.gpu != nullptr)
    transfer(
        ctx, counts(),
        on_device_.tensor(DType::kF64, {layers_, experts_}, 2 * part_bytes(layers_, experts_)));
  for (Communicator* group : {&data_parallel, &pipeline})
    if (group->size() > 1) group->all_reduce(counts());
  loads_.clear();
  for (int layer = 0; layer < static_cast<int>(layers_); ++layer) {
    auto* count = counts().as<double>() + layer * experts_;
    const double total = std::accumulate(count, count + experts_, 0.0);
    if (total == 0) continue;  // a dense layer
    loads_.push_back(load_of(layer));
    if (outcome.skip == 0) update(layer, total);
    std::fill_n(count, experts_, 0.0);
  }
  place(ctx);
}

void RouterState::update(int layer, double total) const {
  const auto* count = counts().as<double>() + layer * experts_;
  const double mean = total / static_cast<double>(experts_);
  for (int64_t e = 0; e < experts_; ++e) {
    const int64_t i = layer * experts_ + e;
    all_shares().as<double>()[i] = count[e] / total;
    const double step = moe_.bias_update_speed * ((mean > count[e]) - (mean < count[e]));
    if (dtype_ == DType::kF64)
      biases().as<double>()[i] += step;
    else
      biases().as<float>()[i] += static_cast<float>(step);
  }
}

std::vector<RouterState::Named> RouterState::saved() const {
  std::vector<Named> out;
  for (int layer = 0; layer < static_cast<int>(layers_); ++layer) {
    if (!moe_.sparse(layer)) continue;
    const std::string experts = concat(names_.layers, ".", layer, ".", names_.experts, ".");
    if (moe_.selection_bias) out.push_back({experts + names_.selection_bias, row(biases(), layer)});
    if (moe_.balance_scope == BalanceScope::kGlobal)
      out.push_back({concat(experts, names_.router, ".expert_shares"), row(all_shares(), layer)});
  }
  return out;
}

}  // namespace trireme
