// Optimizer states over the part of a ParameterStore's flat range that this rank updates, and the
// update.
#pragma once

#include <string>
#include <vector>

#include "optim/config.h"
#include "optim/optimizer.h"
#include "optim/state_storage.h"
#include "parallel/parameter_store.h"

namespace trireme {

struct Ctx;

class FlatOptimizer {
 public:
  // Keeps a reference to the store. States lie as its state_map() says. InputError where the
  // optimizer needs whole matrices and the layout cuts them.
  FlatOptimizer(const OptimizerConfig& config, const OffloadConfig& offload, ParameterStore& store,
                uint64_t seed);
  void allocate(Ctx& ctx) { storage_.allocate(ctx); }
  // Master weights start as the parameters' values.
  void initialize(Ctx& ctx);
  int64_t state_bytes() const { return storage_.memory_bytes(); }
  int64_t file_bytes() const { return storage_.file_bytes(); }  // of states kept in a file

  // One update of every parameter this rank holds states of, from the store's gradients; `scalars`
  // as in engine/ops/optimizer_step.h. Norms and biases are not decayed.
  void update(Ctx& ctx, const ConstTensor& scalars);

  // The states for a checkpoint: "master", where weights are kept in float32, and those of the
  // optimizer.
  struct State {
    std::string kind;
    Tensor flat;
  };
  std::vector<State> states() const;

 private:
  struct Segment {   // a parameter's part of one piece
    FlatRange flat;  // of the store's flat range
    int64_t offset;  // in the states
    ParamHandle parameter;
  };
  template <class F>
  void for_each_part(const FlatRange& window, F&& f) const;
  void update_part(Ctx& ctx, const ConstTensor& scalars, const Segment& part,
                   std::span<const Tensor> states);
  void check_matrices(const OffloadConfig& offload) const;
  bool has_master() const;
  std::vector<StateStorage::Kind> kinds() const;
  OptimizerConfig config_;
  ParameterStore& store_;
  uint64_t seed_;
  std::vector<Segment> segments_;  // by offset
  StateStorage storage_;
};

}  // namespace trireme
