// Gradient destination of a parameter that may be frozen.
#pragma once

#include "transformer/pass/pass.h"

namespace trireme {

// Returns the parameter's gradient slot. For a frozen parameter allocates `scratch`, of the same
// shape, as a destination that nothing reads.
GradientSlot gradient_or_scratch(Pass& pass, ParamHandle parameter, Activation& scratch);

}  // namespace trireme
