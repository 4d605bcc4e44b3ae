// Weight of a linear layer during a pass: the store's own, or a 4-bit weight
// (parallel/packed_weights.h) unpacked into memory of the step for the lifetime of this object. A
// block-quantized weight (parallel/quantized_weights.h) is not unpacked: inference multiplies with
// the blocks, and nothing else reads them.
#pragma once

#include <vector>

#include "engine/ops/gemm/gemm.h"
#include "engine/ops/quantized/quantized_weight.h"
#include "transformer/pass/pass.h"

namespace trireme {

class Weight {
 public:
  // `first` .. `last`: weights of one fused matrix.
  Weight(Pass& pass, ParamHandle first, ParamHandle last) {
    if (pass.params.in_blocks(first)) {
      blocks_ = pass.params.quantized_matrices(first, last);
      return;
    }
    if (!pass.params.packed(first)) {
      view_ = pass.params.value(first, last);
      return;
    }
    memory_ =
        pass.ctx.allocate("unpacked weight", pass.params.dtype(), pass.params.shape(first, last));
    pass.params.unpack(pass.ctx, first, last, memory_);
    view_ = memory_;
  }
  Weight(Pass& pass, ParamHandle h) : Weight(pass, h, h) {}
  // Absent where the weight is block-quantized.
  operator const Tensor&() const { return view_; }  // NOLINT: used as the tensor it shows
  bool in_blocks() const { return !blocks_.empty(); }
  // y = x w^T [+ bias]
  void multiply(Ctx& ctx, const Tensor& y, const ConstTensor& x, const ConstTensor& bias) const {
    if (in_blocks()) return linear_forward_blocks(ctx, y, x, blocks_, bias);
    linear_forward(ctx, y, x, view_, bias);
  }

 private:
  std::vector<QuantizedMatrix> blocks_;
  Activation memory_;
  Tensor view_;
};

}  // namespace trireme
