// What the routers of a model carry from step to step beside their parameters: the bias that
// balances experts without a loss (Wang et al. 2024), and how many tokens each expert was chosen
// by.
#pragma once

#include <vector>

#include "engine/ops/context.h"
#include "parallel/comm/communicator.h"
#include "transformer/config/model_config.h"

namespace trireme {

struct ParameterNames;

// Tokens per expert of one layer in one step.
struct ExpertLoad {
  int layer = 0;
  double max_over_mean = 0;
  double p50 = 0, p90 = 0, p99 = 0;  // percentiles over the experts, nearest rank
};

class RouterState {
 public:
  // dtype: of the model; the biases are float32 (float64 for float64). All zeros.
  RouterState(const ModelConfig& config, DType dtype);

  Tensor bias(int layer) const;         // (E); absent where the model has none
  ConstTensor shares(int layer) const;  // (E) float64: of the last finished step; zeros before
  // counts (S, E) float64 of a micro-batch, already summed over the ranks that share it.
  void count(Ctx& ctx, int layer, const ConstTensor& counts);

  // Ends a step: adds up the counts over the ranks with other micro-batches and over those with
  // other layers, moves bias_e by speed * sign(mean - count_e), turns counts into shares and keeps
  // the loads. Every rank then has the state of all layers. Where scalars (kStepScalarsBytes uint8,
  // a StepScalars) say that the optimizer skipped the step, biases and shares stay as they are: the
  // step changes nothing that training depends on. The next step counts from zero either way.
  void finish_step(Ctx& ctx, Communicator& data_parallel, Communicator& pipeline,
                   const ConstTensor& scalars);
  // On a GPU: takes memory there for what ops read and add to. To be called again after the tensors
  // of saved() were written. Else does nothing.
  void place(Ctx& ctx);
  // Of the last finished step, for the sparse layers.
  const std::vector<ExpertLoad>& loads() const { return loads_; }

  // What must be saved with the parameters to go on exactly, (E) each: the biases of sparse layers
  // ("model.layers.3.mlp.gate.e_score_correction_bias") and the shares where the balancing loss
  // uses them. The same on every rank.
  struct Named {
    std::string name;
    Tensor tensor;
  };
  std::vector<Named> saved() const;

 private:
  const Buffer& used() const { return on_device_.data() != nullptr ? on_device_ : block_; }
  Tensor row(const Tensor& of_layers, int layer) const;
  Tensor biases() const;      // (L, E)
  Tensor all_shares() const;  // (L, E)
  Tensor counts() const;      // (L, E)
  ExpertLoad load_of(int layer) const;
  void update(int layer, double total) const;  // biases and shares, of the step's counts
  int64_t layers_, experts_;
  DType dtype_;
  MoeConfig moe_;
  const ParameterNames& names_;
  Buffer block_;      // the host's
  Buffer on_device_;  // the same, where a GPU computes
  std::vector<ExpertLoad> loads_;
};

}  // namespace trireme
