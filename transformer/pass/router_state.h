// Router state that persists across steps, besides parameters: the selection bias that balances the
// experts without a loss (Wang et al. 2024), and the number of tokens that chose each expert.
#pragma once

#include <vector>

#include "engine/ops/context.h"
#include "parallel/comm/communicator.h"
#include "transformer/config/model_config.h"

namespace trireme {

struct ParameterNames;

// Load of the experts of one layer in one step: statistics of the tokens per expert.
struct ExpertLoad {
  int layer = 0;
  double max_over_mean = 0;
  double p50 = 0, p90 = 0, p99 = 0;  // percentiles over the experts, nearest rank, in tokens
};

class RouterState {
 public:
  // dtype: of the model; the biases are float32 (float64 for float64). Everything starts at zero.
  RouterState(const ModelConfig& config, DType dtype);

  Tensor bias(int layer) const;  // (E); absent in models without selection bias
  // (E) float64: each expert's share of the pairs of the last step not skipped; zeros before.
  ConstTensor shares(int layer) const;
  // Adds counts (S, E) float64, pairs per segment and expert of a micro-batch, already summed over
  // the ranks that share it.
  void count(Ctx& ctx, int layer, const ConstTensor& counts);

  // Ends a step: sums the counts over the ranks with other micro-batches and over those with other
  // layers, moves bias_e by speed * sign(mean - count_e), converts counts into shares and records
  // the loads. Afterwards every rank has the state of all layers. Biases and shares stay unchanged
  // if `scalars` (kStepScalarsBytes uint8, a StepScalars) reports that the optimizer skipped the
  // step. Resets the counts in either case.
  void finish_step(Ctx& ctx, Communicator& data_parallel, Communicator& pipeline,
                   const ConstTensor& scalars);
  // On a GPU: copies the tensors that ops read and add to into device memory. Call again after
  // writing to the tensors of saved(). No effect on a CPU.
  void place(Ctx& ctx);
  // Loads of the last finished step, one entry per sparse layer.
  const std::vector<ExpertLoad>& loads() const { return loads_; }

  // State that a checkpoint needs for an exact resume, (E) each, on the host: the biases of sparse
  // layers ("model.layers.3.mlp.gate.e_score_correction_bias") and the shares if the balancing loss
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
  void update(int layer, double total) const;  // biases and shares, from the step's counts
  int64_t layers_, experts_;
  DType dtype_;
  MoeConfig moe_;
  const ParameterNames& names_;
  Buffer block_;      // on the host
  Buffer on_device_;  // the same, on a GPU
  std::vector<ExpertLoad> loads_;
};

}  // namespace trireme
