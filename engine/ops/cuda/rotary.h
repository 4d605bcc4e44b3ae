// GPU kernel of engine/ops/rotary.h. A position outside the table gives NaN in its row.
#pragma once

#include "engine/device/context.h"
#include "engine/ops/cpu/rotary.h"

namespace trireme::cuda {

template <class T>
TRIREME_CUDA_DECL void rotary(Context& gpu, const cpu::Rotary<T>& a);

}  // namespace trireme::cuda
