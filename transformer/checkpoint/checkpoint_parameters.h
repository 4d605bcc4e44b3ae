// Loading of a checkpoint's tensors into a rank's parameters, regardless of the layout that saved
// them.
#pragma once

#include <string>
#include <vector>

#include "engine/io/sharded_checkpoint.h"
#include "transformer/model/model.h"

namespace trireme {

// Array that a checkpoint's tensors of one kind are loaded into and saved from: kKindParam
// (engine/io/checkpoint_manifest.h), the kind of an optimizer state, or of a residual. All share
// one flat index range; `map` gives the part of it that `array`, of rank 1, holds on this rank.
struct StoredArray {
  std::string kind;
  Tensor array;
  const ShardMap& map;
};

// Reads, for every trained parameter, the elements that `stored` holds on this rank. Skips frozen
// parameters: they belong to the base of the adapters. InputError if a tensor of which it holds
// elements is absent or has another shape or dtype.
void read_stored(Ctx& ctx, const CheckpointReader& reader, const ParameterStore& store,
                 const StoredArray& stored);

// Appends the parts of the trained parameters that this rank saves: the elements of `saved`, a map
// of the same flat range, of the parameters of which it holds copy 0. `stored` must hold them.
void add_parts(const ParameterStore& store, const StoredArray& stored, const ShardMap& saved,
               std::vector<CheckpointPart>& parts);

// Router state that checkpoints hold: selection biases and expert shares (RouterState::saved()).
// Empty: the model has none.
// load_routers() reads it and copies it to the device. InputError as for read_stored().
std::vector<RouterState::Named> router_tensors(const Model& model);
void load_routers(Ctx& ctx, const CheckpointReader& reader, const Model& model);

// Loads the trained parameters and the router state without optimizer states, for evaluation and
// generation. InputError as for read_stored().
void load_parameters(Ctx& ctx, const CheckpointReader& reader, const Model& model,
                     ParameterStore& store);

std::vector<int64_t> dims_of(const Shape& shape);

}  // namespace trireme
