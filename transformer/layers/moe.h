// Mixture of experts in place of a block's MLP:
//   y_t = sum_j w_tj expert_{e_tj}(x_t) [+ g_t shared(x_t)]
// with the k experts e and weights w of the router (transformer/layers/moe_router.h). An expert is
// a gated MLP (transformer/layers/gated_unit.h), with biases in some models, and so is the shared
// expert, whose factor g = sigmoid(x w_g) is optional (Qwen2-MoE).
//
//   x (n, C) -router-> k experts a token -gather_rows-> pairs sorted by expert (p, C)
//     -dispatch over ep, etp-> rows of this rank's experts (r, C) -two grouped products-> (r, C)
//     -combine over etp, ep-> results (p, C) -weighted sum-> y (n, C)
//
// In Llama 4 the weights multiply the inputs: y_t = sum_j expert_{e_tj}(w_tj x_t).
//
// The shared expert's first product overlaps with the dispatch, its second one with the combine
// (parallel.moe_shared_expert_overlap), and likewise backward. Without overlap the order is the
// same. Every rank of dp x cp x tp contributes different tokens: without sequence parallelism,
// where the tp ranks have the same tokens, each processes its part of them, and the results are
// gathered over tp.
//
// p is at most n k, but r depends on the routing of all ranks: buffers hold
// TokenDispatcher::default_bound() rows (parallel/moe/token_dispatcher.h), and the work runs in
// rounds if more rows arrive. Then the rows are not saved: backward_input() dispatches the tokens
// again, round by round, and computes the experts' weight gradients in the same rounds.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "engine/ops/moe/grouped_bias.h"
#include "engine/ops/moe/grouped_gemm.h"
#include "parallel/moe/token_dispatcher.h"
#include "transformer/layers/mlp.h"
#include "transformer/layers/moe_router.h"

namespace trireme {

class Moe {
 public:
  // prefix: name of the layer, "model.layers.0".
  Moe(const ModelConfig& config, const Layout& layout, ParameterList& list,
      const std::string& prefix, int block, int layer);

  // n: tokens that this rank routes. F: its part of an expert's width. r: the bound of rows.
  struct Saved {
    MoeRouter::Saved router;
    Activation places;            // (n, k) int32: as in engine/ops/moe/expert_rows.h
    Activation pairs;             // (n k) int32: likewise
    Activation results;           // (n k, C): outputs of the experts
    Activation rows, inner, act;  // (r, C), (r, 2F), (r, F); act absent: recomputed from inner
    ExpertRoute route;
    Mlp::Saved shared;
    Activation shared_out;         // (T / split, C), with the factor g
    Activation gate, gate_choice;  // (T / split, 1): g; int32 scratch of the router op
  };
  struct Deferred {
    MoeRouter::Deferred router;
    Activation d_rows, d_inner;  // (r, C), (r, 2F)
    Mlp::Deferred shared;
    Activation d_shared;  // (T / split, C), with the factor g
    Activation d_gate;    // (T / split, 1) of x's dtype: gradient of the logit of g
  };

  // y = moe(x); x, y (T / split, C). keep_act == false drops Saved::act (selective recompute).
  void forward(Pass& pass, const Tensor& y, const ConstTensor& x, Saved* saved,
               bool keep_act) const;
  // Overwrites dx. x is the layer's input. dx, dy, x (T / split, C); dy must stay valid until
  // backward_weight().
  Deferred backward_input(Pass& pass, const Tensor& dx, const ConstTensor& dy, const ConstTensor& x,
                          Saved& saved) const;
  void backward_weight(Pass& pass, const ConstTensor& dy, const ConstTensor& x, const Saved& saved,
                       const Deferred& deferred) const;

  // First weight of the matrix of each of the shared expert's linear layers; empty without it.
  std::vector<ParamHandle> linear_weights() const {
    return shared_ == nullptr ? std::vector<ParamHandle>() : shared_->linear_weights();
  }

  // Overrides the default bound of rows per buffer, to test the rounds.
  void set_bound(int64_t rows) { bound_ = rows; }

 private:
  struct Expert {
    ParamHandle gate = -1, up = -1, down = -1;
    ParamHandle gate_bias = -1, up_bias = -1, down_bias = -1;  // -1: none
  };
  // Adds the biases of the expert called `name`. inner: this rank's part of its width.
  void add_biases(ParameterList& list, const ParameterNames& names, const std::string& name,
                  const DimSlice& inner, int block, Expert& expert) const;
  TokenDispatcher token_dispatcher(const Pass& pass) const;
  int64_t bound(const Pass& pass, const TokenShare& share) const;
  // Weights of all experts of this rank: the store's own, or unpacked into memory of the step
  // (transformer/pass/weight.h).
  struct Weights {
    Activation unpacked;
    std::vector<Tensor> each;
  };
  Weights weights(Pass& pass, ParamHandle Expert::*first, ParamHandle Expert::*last) const;
  Weights first_weights(Pass& pass) const;
  Weights second_weights(Pass& pass) const;
  // y = x w^T, where expert e's w multiplies rows [offsets[e], offsets[e + 1]).
  void multiply(Pass& pass, const Tensor& y, const ConstTensor& x, ParamHandle Expert::*first,
                ParamHandle Expert::*last, std::span<const int64_t> offsets) const;
  void gather_pairs(Pass& pass, const Tensor& out, const ConstTensor& x, const Saved& saved) const;
  void combine(Pass& pass, const Tensor& y, const Saved& saved) const;
  void choose(Pass& pass, const ConstTensor& x, const TokenShare& share, Saved& saved) const;
  // Work that overlaps with the first dispatch and with the last combine.
  struct OverlappedWork {
    std::function<void()> dispatch, combine;
  };
  bool overlaps_shared(const Pass& pass) const;
  void run_experts(Pass& pass, const ConstTensor& x, Saved& saved,
                   const OverlappedWork& overlapped) const;
  // The two products of the experts with their biases, and the activation between them.
  void multiply_first(Pass& pass, const Tensor& inner, const ConstTensor& x,
                      std::span<const int64_t> offsets) const;
  void multiply_second(Pass& pass, const Tensor& out, const ConstTensor& act,
                       std::span<const int64_t> offsets) const;
  void activate(Pass& pass, const Saved& saved, int64_t rows) const;
  void experts_backward(Pass& pass, const Tensor& d_pairs, const ConstTensor& x, Saved& saved,
                        const Deferred& deferred, const OverlappedWork& overlapped) const;
  void experts_backward_weight(Pass& pass, const Saved& saved, const Deferred& deferred,
                               const ExpertRound& round) const;
  void experts_backward_bias(Pass& pass, const Deferred& deferred, const ExpertRound& round) const;
  void plan_overflow(Pass& pass, const Saved& saved, const Deferred& deferred) const;
  void gather_parts(Pass& pass, const Tensor& y, const ConstTensor& part,
                    const TokenShare& share) const;
  OverlappedWork shared_forward(Pass& pass, const ConstTensor& x, Saved& saved) const;
  void add_shared(Pass& pass, const Tensor& y, Saved& saved, bool keep_act) const;
  OverlappedWork shared_backward(Pass& pass, const Tensor& dx, const ConstTensor& dy, Saved& saved,
                                 Deferred& deferred) const;
  void add_shared_gradient(Pass& pass, const Tensor& dx, const ConstTensor& d_shared_x,
                           const ConstTensor& dy, const Saved& saved, Deferred& deferred) const;

  MoeConfig moe_;
  GatedUnit unit_;
  Layout layout_;
  int64_t width_;  // C
  int64_t inner_;  // F
  int64_t bound_ = 0;
  MoeRouter router_;
  std::vector<Expert> experts_;  // this rank's
  std::unique_ptr<Mlp> shared_;
  ParamHandle shared_gate_ = -1;
};

}  // namespace trireme
