#include "transformer/pass/frozen_gradient.h"

namespace trireme {

GradientSlot gradient_or_scratch(Pass& pass, ParamHandle parameter, Activation& scratch) {
  if (pass.params.trained(parameter)) return pass.params.gradient(parameter);
  scratch = pass.ctx.allocate("frozen.gradient", pass.params.gradient_dtype(),
                              pass.params.value(parameter).shape());
  return {scratch, false};
}

}  // namespace trireme
