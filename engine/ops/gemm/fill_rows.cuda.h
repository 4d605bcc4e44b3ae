// Fill of all rows with one row: a bias to which a product is added, or the result of an empty sum.
#pragma once

#include "engine/device/context.h"

namespace trireme::cuda {

// Sets every row of c (rows, columns), with row stride `stride`, to `row` (columns), or to zeros if
// null.
template <class T>
TRIREME_CUDA_DECL void fill_rows(Context& gpu, T* c, const T* row, int64_t rows, int64_t columns,
                                 int64_t stride);

}  // namespace trireme::cuda
