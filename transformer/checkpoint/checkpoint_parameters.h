// Loading of a checkpoint's tensors into the parameters of a rank, whatever layout saved them.
#pragma once

#include <string>
#include <vector>

#include "engine/io/sharded_checkpoint.h"
#include "transformer/model/model.h"

namespace trireme {

// Stored tensors of one kind. Parameters and optimizer states share one flat index range; `map`
// gives the part of it that `array` holds.
struct StoredArray {
  std::string kind;
  Tensor array;
  const ShardMap& map;
};

// Reads, for every trained parameter, the elements of `stored` that this rank holds. Skips frozen
// parameters: they belong to the base of the adapters. InputError where a tensor is absent or has
// another shape or dtype.
void read_stored(Ctx& ctx, const CheckpointReader& reader, const ParameterStore& store,
                 const StoredArray& stored);

// Selection biases of the routers, for saving and loading. Empty: the model has none.
std::vector<RouterState::Named> router_tensors(const Model& model);
void load_routers(Ctx& ctx, const CheckpointReader& reader, const Model& model);

// Loads parameters and selection biases only, for evaluation and generation.
void load_parameters(Ctx& ctx, const CheckpointReader& reader, const Model& model,
                     ParameterStore& store);

std::vector<int64_t> dims_of(const Shape& shape);

}  // namespace trireme
