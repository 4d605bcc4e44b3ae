// Libraries that ops use besides own kernels (cuBLASLt, cuDNN): opened with the device; implemented
// in engine/ops.
#pragma once

#include "engine/device/context.h"

namespace trireme::cuda {

// Sets the handles of `gpu`. Throws InputError naming a required library that is missing.
void open_libraries(Context& gpu);

}  // namespace trireme::cuda
