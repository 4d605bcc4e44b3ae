#include "transformer/checkpoint/finite_weights.h"

#include "engine/core/error.h"
#include "engine/ops/optimizer_step.h"
#include "engine/ops/transfer.h"

namespace trireme {

std::string find_non_finite(Ctx& ctx, const ParameterStore& store, bool adapters) {
  const Buffer found("place of what is not finite", sizeof(int64_t), ctx.memory());
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

}  // namespace trireme
