// Optimizer state over the flat range of a ParameterStore, and the update.
#pragma once

#include <string>
#include <vector>

#include "optim/config.h"
#include "parallel/parameter_store.h"

namespace trireme {

struct Ctx;

class FlatOptimizer {
 public:
  // Keeps a reference to the store. States are laid out like the store's flat range.
  FlatOptimizer(const OptimizerConfig& config, ParameterStore& store, uint64_t seed);
  void allocate();
  // Master weights start as the parameters' values.
  void initialize(Ctx& ctx);
  int64_t state_bytes() const;

  // One update of every parameter from the store's gradients; `scalars` as in
  // engine/ops/optimizer_step.h. Norms and biases are not decayed.
  void update(Ctx& ctx, const ConstTensor& scalars);

  // The states for a checkpoint: "master", "exp_avg", "exp_avg_sq" or "momentum".
  struct State {
    std::string kind;
    Tensor flat;
  };
  std::vector<State> states() const;

 private:
  struct Segment {  // neighbours in the flat range with equal treatment
    FlatRange range;
    bool decay = false;
  };
  void update_segment(Ctx& ctx, const ConstTensor& scalars, const Segment& segment);
  DType state_dtype() const;
  bool has_master() const;
  bool has_second_moment() const;
  bool has_first_moment() const;
  OptimizerConfig config_;
  ParameterStore& store_;
  uint64_t seed_;
  std::vector<Segment> segments_;
  Buffer master_, first_, second_;
};

}  // namespace trireme
