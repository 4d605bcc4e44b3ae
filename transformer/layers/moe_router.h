// Router of a mixture-of-experts layer: logits = x w^T [+ b], noise, top-k selection and weights of
// experts, capacity, auxiliary losses (engine/ops/moe/router.h, router_loss.h, router_noise.h,
// expert_rows.h).
//
// The parameters are replicated. Every rank of dp x cp x tp routes different tokens, so that
// gradients are partial sums over tp too. Quantities of the logical micro-batch are computed by
// collectives over tp and cp, of a size that does not depend on the routing: auxiliary losses by
// all-reduce, capacity by all-gather of the selected experts.
#pragma once

#include "engine/ops/moe/router_loss.h"
#include "transformer/config/model_config.h"
#include "transformer/pass/pass.h"

namespace trireme {

// Tokens that this rank routes, [begin, begin + count) of the pass. With sequence parallelism: its
// share of the residual stream. Without: its part of the tokens, all of which every tensor-parallel
// rank holds.
struct TokenShare {
  int64_t begin = 0;
  int64_t count = 0;
  int64_t chunk = 0;   // maximum count over the tensor-parallel ranks
  bool split = false;  // tp without sequence parallelism: x holds all tokens, not only the share
};
TokenShare token_share(const Pass& pass);

class MoeRouter {
 public:
  // prefix: name of the module that contains the router and the experts, "model.layers.0.mlp".
  MoeRouter(const ModelConfig& config, const Layout& layout, ParameterList& list,
            const std::string& prefix, int block, int layer);

  // n tokens, E experts, k chosen experts per token.
  struct Saved {
    Activation logits;             // (n, E), noise included
    Activation clean, raw, noise;  // (n, E), noisy gating only
    Activation scores;             // (n, E)
    Activation experts, weights;   // (n, k), before capacity drops; experts int32, -1: padding
    // (n) uint8, 0: padding; (n) int32: number of the token's sequence, for a balancing loss by
    // sequence, else 0 (engine/ops/moe/token_marks.h).
    Activation valid, segments;
  };
  struct Deferred {
    Activation d_logits, d_raw;  // (n, E) of x's dtype
  };

  // x (n, C). Fills `saved`. kept (n, k) int32: saved.experts, with -1 for token-expert pairs that
  // exceed the capacity.
  void forward(Pass& pass, const Tensor& kept, const ConstTensor& x, const TokenShare& share,
               Saved& saved) const;
  // dx (n, C) += gradient through the logits. d_weights (n, k): gradient of saved.weights. If
  // pass.loss_scale is present (training), also applies the auxiliary losses, adds them to
  // pass.router_losses and adds the token counts of the experts to pass.routers, if present.
  // Collective over tp and cp then.
  Deferred backward_input(Pass& pass, const Tensor& dx, const ConstTensor& d_weights,
                          const TokenShare& share, const Saved& saved) const;
  void backward_weight(Pass& pass, const ConstTensor& x, const Deferred& deferred) const;

 private:
  bool noisy(const Pass& pass) const { return moe_.noisy && pass.ctx.mode == Mode::kTrain; }
  RouterArgs args() const;
  int64_t segments(const Pass& pass) const;
  void mark_tokens(Pass& pass, const TokenShare& share, Saved& saved) const;
  void drop(Pass& pass, const Tensor& kept, const TokenShare& share) const;
  struct Losses {
    Activation flat;
    Tensor d_probability, d_importance, d_load, d_z;
  };
  Losses losses(Pass& pass, const TokenShare& share, const Saved& saved) const;

  MoeConfig moe_;
  int layer_;
  ParamHandle weight_ = -1;
  ParamHandle bias_ = -1;
  ParamHandle noise_ = -1;
};

}  // namespace trireme
