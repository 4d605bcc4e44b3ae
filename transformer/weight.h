// The weight of a linear layer while a pass multiplies with it: the store's own, or one that is kept in 4 bits
// (parallel/packed_weights.h), unpacked into memory of the step for as long as this lives.
#pragma once

#include "transformer/pass.h"

namespace trireme {

class Weight {
 public:
  // `first` .. `last`: of one fused matrix.
  Weight(Pass& pass, ParamHandle first, ParamHandle last) {
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
  operator const Tensor&() const { return view_; }  // NOLINT: used as the tensor it shows

 private:
  Activation memory_;
  Tensor view_;
};

}  // namespace trireme
