// Norm of a block: RMSNorm or LayerNorm, with the residual add fused in front.
#pragma once

#include "engine/ops/norm/norm.h"
#include "transformer/config/model_config.h"
#include "transformer/pass/pass.h"
#include "transformer/pass/sharding.h"

namespace trireme {

class Norm {
 public:
  // Adds `prefix`.weight (and .bias for LayerNorm) to the list.
  Norm(const ModelConfig& config, const Layout& layout, ParameterList& list,
       const std::string& prefix, int block);

  // RMSNorm of `width` columns, independent of the model's norms.
  Norm(const Layout& layout, ParameterList& list, const std::string& prefix, int64_t width,
       double eps, int block);

  struct Saved {
    Activation mean;  // (R), LayerNorm only
    Activation rstd;  // (R)
  };
  // h = x + residual, y = norm(h). All (R, C), for any number of tokens R. Without residual h is
  // not written: pass an absent tensor. Always fills `saved`: the statistics are outputs of the op.
  void forward(Pass& pass, const Tensor& y, const Tensor& h, const ConstTensor& x,
               const ConstTensor& residual, Saved& saved) const;
  // dx = gradient of h, given dy and the gradient dh_in that h receives from its other uses
  // (optional). Writes the gradients of weight and bias.
  void backward(Pass& pass, const Tensor& dx, const ConstTensor& dy, const ConstTensor& dh_in,
                const ConstTensor& h, const Saved& saved) const;

 private:
  ParamHandle add_vector(const Layout& layout, ParameterList& list, const std::string& name,
                         int64_t width, InitKind init, int block) const;
  bool layer_norm_;
  double eps_;
  double gamma_offset_ = 0;  // added to the weights
  ParamHandle weight_ = -1;
  ParamHandle bias_ = -1;
};

}  // namespace trireme
