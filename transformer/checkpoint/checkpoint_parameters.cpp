#include "transformer/checkpoint/checkpoint_parameters.h"

#include "engine/ops/rows/transfer.h"

namespace trireme {

std::vector<int64_t> dims_of(const Shape& shape) {
  return {shape.dims().begin(), shape.dims().end()};
}

void read_stored(Ctx& ctx, const CheckpointReader& reader, const ParameterStore& store,
                 const StoredArray& stored) {
  for (ParamHandle h = 0; h < std::ssize(store.specs()); ++h) {
    const ParameterSpec& spec = store.specs()[static_cast<size_t>(h)];
    if (!store.trained(h)) continue;  // base of adapters: stored elsewhere
    const std::vector<int64_t> shape = dims_of(spec.shape);
    const TensorBox box = spec.box.extent.empty() ? whole_box(shape) : spec.box;
    const CheckpointTensor* tensor = nullptr;
    stored.map.for_each(store.range(h), [&](const FlatRange& part, int64_t at) {
      if (tensor == nullptr)
        tensor = &reader.require(stored.kind, spec.name, stored.array.dtype(), shape);
      const int64_t begin = part.begin - store.range(h).begin;
      fill_from_host(ctx, stored.array.slice(0, at, at + part.size()),
                     [&](const Tensor& piece, int64_t first) {
                       reader.read(*tensor, box, begin + first, piece);
                     });
    });
  }
}

void add_parts(const ParameterStore& store, const StoredArray& stored, const ShardMap& saved,
               std::vector<CheckpointPart>& parts) {
  for (ParamHandle h = 0; h < std::ssize(store.specs()); ++h) {
    const ParameterSpec& spec = store.specs()[static_cast<size_t>(h)];
    if (spec.copy != 0 || !store.trained(h)) continue;
    saved.for_each(store.range(h), [&](const FlatRange& part, int64_t) {
      const int64_t at = stored.map.offset(part.begin);
      parts.push_back({stored.kind, spec.name, dims_of(spec.shape), spec.box,
                       part.begin - store.range(h).begin,
                       stored.array.slice(0, at, at + part.size())});
    });
  }
}

std::vector<RouterState::Named> router_tensors(const Model& model) {
  return model.routers() == nullptr ? std::vector<RouterState::Named>() : model.routers()->saved();
}

void load_routers(Ctx& ctx, const CheckpointReader& reader, const Model& model) {
  for (const RouterState::Named& t : router_tensors(model)) {
    const std::vector<int64_t> shape = dims_of(t.tensor.shape());
    reader.read(reader.require(kKindRouter, t.name, t.tensor.dtype(), shape), whole_box(shape), 0,
                t.tensor);
  }
  if (model.routers() != nullptr) model.routers()->place(ctx);
}

void load_parameters(Ctx& ctx, const CheckpointReader& reader, const Model& model,
                     ParameterStore& store) {
  load_routers(ctx, reader, model);
  read_stored(ctx, reader, store, {kKindParam, store.flat_values(), store.value_map()});
}

}  // namespace trireme
