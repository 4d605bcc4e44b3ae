// Reading of a checkpoint's tensors into the parameters of a rank, whatever layout saved them.
#pragma once

#include <string>
#include <vector>

#include "engine/io/sharded_checkpoint.h"
#include "transformer/model/model.h"

namespace trireme {

// One kind of stored tensors: parameters and optimizer states share one flat range, of which
// `array` holds what `map` says.
struct StoredArray {
  std::string kind;
  Tensor array;
  const ShardMap& map;
};

// Reads the elements of `stored` that this rank holds of every trained parameter; frozen ones
// belong to the base of adapters. InputError where a tensor is absent or of another shape or dtype.
void read_stored(Ctx& ctx, const CheckpointReader& reader, const ParameterStore& store,
                 const StoredArray& stored);

// Selection biases of routers, to be saved or loaded; empty: the model has none.
std::vector<RouterState::Named> router_tensors(const Model& model);
void load_routers(Ctx& ctx, const CheckpointReader& reader, const Model& model);

// Parameters and selection biases only, for evaluation and generation.
void load_parameters(Ctx& ctx, const CheckpointReader& reader, const Model& model,
                     ParameterStore& store);

std::vector<int64_t> dims_of(const Shape& shape);

}  // namespace trireme
