// Hyperparameters of a mixture of experts, in one form for all families.
#pragma once

#include <cstdint>
#include <vector>

namespace trireme {

// Set of tokens over which the balancing loss averages (engine/ops/moe/router_loss.h).
enum class BalanceScope {
  kMicroBatch,
  kSequence,  // each sequence by itself
  kGlobal,    // expert shares of the previous step's whole batch; no loss in the first step
};

struct MoeConfig {
  int64_t experts = 0;                   // E; 0: a dense model
  int64_t experts_per_token = 0;         // k
  int64_t intermediate_size = 0;         // F of an expert
  int64_t shared_intermediate_size = 0;  // F of the shared expert, a dense MLP; 0: none
  bool shared_gate = false;              // shared expert's output times sigmoid(x w) (Qwen2-MoE)

  bool expert_bias = false;       // biases of an expert's three products
  bool router_bias = false;       // bias of the router's logits
  bool sigmoid_scores = false;    // else softmax
  bool choose_by_logits = false;  // as the next two: RouterArgs (engine/ops/moe/router.h)
  bool normalize_weights = true;
  double weight_scale = 1.0;
  bool scaled_inputs = false;   // weights multiply the inputs of the experts, not their outputs
  int64_t groups = 1;           // of experts; RouterArgs
  int64_t kept_groups = 1;      // groups from which a token's experts are selected
  bool selection_bias = false;  // added to the scores for top-k selection only; no gradient
  bool noisy = false;           // noisy top-k gating (Shazeer et al. 2017)

  // Factors of the auxiliary losses (engine/ops/moe/router_loss.h); 0: the loss is absent.
  double balance_coef = 0, z_coef = 0, importance_coef = 0, load_coef = 0;
  BalanceScope balance_scope = BalanceScope::kMicroBatch;
  double bias_update_speed = 0;  // change of a selection bias per step; 0: it is fixed
  double capacity_factor = 0;    // capacity / an expert's even share; 0: no tokens are dropped

  // Layer l has experts when l >= first_sparse, l % sparse_step == sparse_phase and l is not in
  // dense_layers.
  int64_t first_sparse = 0, sparse_step = 1, sparse_phase = 0;
  std::vector<int64_t> dense_layers;

  bool sparse(int64_t layer) const;
  bool operator==(const MoeConfig&) const = default;
};

}  // namespace trireme
