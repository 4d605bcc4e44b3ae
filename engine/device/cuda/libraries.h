// The libraries that ops call beside kernels: opened with the device, implemented in
// engine/ops/cuda/.
#pragma once

#include "engine/device/context.h"

namespace trireme::cuda {

// Fills in the handles of `gpu`. Throws InputError naming a library that must be there and is not.
void open_libraries(Context& gpu);

}  // namespace trireme::cuda
