#include "transformer/checkpoint/finite_weights.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "engine/core/error.h"
#include "engine/ops/optimizer/optimizer_step.h"
#include "engine/ops/rows/transfer.h"
#include "transformer/model/model.h"

namespace trireme {
namespace {

template <class T>
bool all_finite(const Tensor& tensor) {
  const std::span<const T> values(tensor.as<T>(), static_cast<size_t>(tensor.numel()));
  return std::ranges::all_of(values, [](T x) { return std::isfinite(x); });
}

}  // namespace

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
  for (const RouterState::Named& named : model.routers()->saved())
    if (const Tensor& t = named.tensor;
        !(t.dtype() == DType::kF64 ? all_finite<double>(t) : all_finite<float>(t)))
      return concat(named.name, " has elements that are not finite");
  return "";
}

}  // namespace trireme
