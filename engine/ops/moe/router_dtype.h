// Dtypes of router logits and scores: float32 or float64.
#pragma once

#include "engine/core/dtype.h"

namespace trireme {

// Runs f<double>() or f<float>().
template <class F>
void dispatch_router_dtype(DType dtype, F&& f) {
  dtype == DType::kF64 ? f.template operator()<double>() : f.template operator()<float>();
}

}  // namespace trireme
