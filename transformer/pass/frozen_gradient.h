// Destination of the gradient of a parameter that may be frozen.
#pragma once

#include "transformer/pass/pass.h"

namespace trireme {

// The parameter's gradient or, if it is frozen, `scratch`, allocated here, which nothing reads.
GradientSlot gradient_or_scratch(Pass& pass, ParamHandle parameter, Activation& scratch);

}  // namespace trireme
