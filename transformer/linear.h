// A linear layer y = x w^T + b over one or several logical weights stored as one matrix.
#pragma once

#include "engine/ops/activation.h"
#include "engine/ops/gemm.h"
#include "transformer/pass.h"

namespace trireme {

// One logical weight of a fused projection: q_proj, k_proj, v_proj.
struct LinearPart {
  std::string name;  // without ".weight"
  int64_t out = 0;
};

class Linear {
 public:
  Linear() = default;
  Linear(ParameterList& list, const std::vector<LinearPart>& parts, int64_t in, bool bias,
         double init_std, int block);

  int64_t out() const { return out_; }
  // x (T, in), y (T, out)
  void forward(Pass& pass, const Tensor& y, const ConstTensor& x) const;
  // dx = dy w, or dx += dy w
  void backward_input(Pass& pass, const Tensor& dx, const ConstTensor& dy,
                      bool accumulate = false) const;
  // The gradients of weight and bias from the layer's input x and the output's gradient dy.
  void backward_weight(Pass& pass, const ConstTensor& dy, const ConstTensor& x) const;

 private:
  int64_t in_ = 0, out_ = 0;
  ParamHandle first_weight_ = -1, last_weight_ = -1;
  ParamHandle first_bias_ = -1, last_bias_ = -1;
};

}  // namespace trireme
