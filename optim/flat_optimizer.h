// Optimizer of one rank: states and updates of the parameters that this rank updates, which are a
// part of the ParameterStore's flat range (all of it without ZeRO).
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
  // `store` must outlive this object; its state_map() determines the layout of the states. Throws
  // InputError if the optimizer needs whole matrices and the layout splits them or the states are
  // in a file. seed: of stochastic rounding.
  FlatOptimizer(const OptimizerConfig& config, const OffloadConfig& offload, ParameterStore& store,
                uint64_t seed);
  void allocate(Ctx& ctx) { storage_.allocate(ctx); }
  // Initializes the master weights, if any, from the parameters.
  void initialize(Ctx& ctx);
  int64_t state_bytes() const { return storage_.memory_bytes(); }  // bytes of states in memory
  int64_t file_bytes() const { return storage_.file_bytes(); }     // bytes of states in a file

  // Updates the parameters in this rank's part of the flat range from the store's gradients; a
  // skipped step changes nothing. scalars: as in engine/ops/optimizer/optimizer_step.h. Norms and
  // biases get no weight decay.
  void update(Ctx& ctx, const ConstTensor& scalars);

  // States to save in a checkpoint: "master" if there are float32 master weights, and those of the
  // optimizer ("exp_avg", ...).
  struct State {
    std::string kind;
    Tensor flat;  // (n) view of this rank's states, in the layout of the store's state_map()
  };
  std::vector<State> states() const;
  bool has_master() const;
  // Arrays of states(). master(): absent if there is none. first_moment(): of an optimizer with an
  // Optimizer::moment_exchange().
  Tensor master() const;
  Tensor first_moment() const;

 private:
  struct Segment {   // contiguous part of one parameter
    FlatRange flat;  // position in the store's flat range
    int64_t offset;  // position in the optimizer states
    ParamHandle parameter;
  };
  template <class F>
  void for_each_part(const FlatRange& window, F&& f) const;
  void update_part(Ctx& ctx, const ConstTensor& scalars, const Segment& part,
                   std::span<const Tensor> states);
  void check_matrices(const OffloadConfig& offload) const;
  std::vector<StateStorage::Kind> kinds() const;
  OptimizerConfig config_;
  ParameterStore& store_;
  uint64_t seed_;
  std::vector<Segment> segments_;  // by offset
  StateStorage storage_;
};

}  // namespace trireme
