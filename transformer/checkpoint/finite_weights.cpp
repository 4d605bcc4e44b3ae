#include "transformer/checkpoint/finite_weights.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "engine/core/error.h"
#include "engine/ops/optimizer/optimizer_step.h"
#include "engine/ops/rows/transfer.h"
#include "transformer/model/model.h"

namespace trireme {

std::string find_non_finite(Ctx& ctx, const ParameterStore& store, bool adapters) {
  const Buffer found("index of a non-finite element", sizeof(int64_t), ctx.memory());
  const Tensor first = found.tensor(DType::kI64, Shape{1});
  const Tensor values = store.flat_values();
  for (ParamHandle h = 0; h < std::ssize(store.specs()); ++h) {
    const ParameterSpec& spec = store.specs()[static_cast<size_t>(h)];
    if ((adapters && !spec.adapter) || store.packed(h)) continue;
    fill_bytes(ctx, first, kNotFoundByte);
    store.value_map().for_each(store.range(h), [&](const FlatRange& part, int64_t offset) {
      first_non_finite(ctx, first, values.slice(0, offset, offset + part.size()));
    });
    if (to_host<int64_t>(ctx, first).front() != kNotFound)
      return concat(spec.name, " has elements that are not finite in ", text(store.dtype()));
  }
  return "";
}

std::string find_non_finite(const Model& model) {
  if (model.routers() == nullptr) return "";
  for (const RouterState::Named& named : model.routers()->saved()) {
    if (named.tensor.dtype() != DType::kF32) continue;
    const std::span<const float> values(named.tensor.as<float>(),
                                        static_cast<size_t>(named.tensor.numel()));
    if (!std::ranges::all_of(values, [](float x) { return std::isfinite(x); }))
      return concat(named.name, " has elements that are not finite");
  }
  return "";
}

}  // namespace trireme
