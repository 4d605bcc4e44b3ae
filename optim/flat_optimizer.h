// Optimizer states over the part of a ParameterStore's flat range that this rank updates, and their
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
  // Keeps a reference to the store. States are laid out by its state_map(). Throws InputError if
  // the optimizer needs whole matrices and the layout splits them.
  FlatOptimizer(const OptimizerConfig& config, const OffloadConfig& offload, ParameterStore& store,
                uint64_t seed);
  void allocate(Ctx& ctx) { storage_.allocate(ctx); }
  // Initializes the master weights from the parameters.
  void initialize(Ctx& ctx);
  int64_t state_bytes() const { return storage_.memory_bytes(); }
  int64_t file_bytes() const { return storage_.file_bytes(); }  // of states kept in a file

  // Updates every parameter this rank has states for, from the store's gradients; `scalars` as in
  // engine/ops/optimizer/optimizer_step.h. Norms and biases are not decayed.
  void update(Ctx& ctx, const ConstTensor& scalars);

  // States in a checkpoint: "master" if weights are kept in float32, and the optimizer's own.
  struct State {
    std::string kind;
    Tensor flat;
  };
  std::vector<State> states() const;

 private:
  struct Segment {   // part of a parameter in one piece
    FlatRange flat;  // of the store's flat range
    int64_t offset;  // of the optimizer states
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
