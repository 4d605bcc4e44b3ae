// Dispatch on the dtype of router logits and scores: float32 or float64.
#pragma once

#include "engine/core/dtype.h"

namespace trireme {

// Calls f<double>() for float64, f<float>() otherwise.
template <class F>
void dispatch_router_dtype(DType dtype, F&& f) {
  dtype == DType::kF64 ? f.template operator()<double>() : f.template operator()<float>();
}

}  // namespace trireme
