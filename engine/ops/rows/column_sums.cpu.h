// Column sums of a matrix, independent of the number of threads. The number of row blocks follows
// from the number of rows alone (engine/ops/rows/row_blocks.h). Each block has a row of partial
// sums; add_partials() adds them in the order of the blocks.
#pragma once

#include <cstdint>

#include "engine/core/parallel_for.h"
#include "engine/ops/backend/vector_loop.cpu.h"

namespace trireme::cpu::TRIREME_ISA {

// Calls body(block, begin, end) for every block, whose rows are [begin, end), in parallel if the
// matrix is large enough.
template <class Body>
TRIREME_INLINE void for_row_blocks(int threads, int64_t blocks, int64_t rows, int64_t columns,
                                   Body&& body) {
  constexpr int64_t kElementsWorthAThread = 1 << 13;
  const int64_t grain = kElementsWorthAThread * blocks / (rows * columns + 1) + 1;
  parallel_for(threads, blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) body(b, rows * b / blocks, rows * (b + 1) / blocks);
  });
}

// out[c] = sum over b of partial[b * columns + c], or += if `accumulate`. out (columns), partial
// (blocks, columns).
template <class F>
TRIREME_INLINE void add_partials(F* out, const F* partial, int64_t blocks, int64_t columns,
                                 bool accumulate) {
  for_vectors<F>(columns, [&](int64_t c, auto lanes) {
    Vec<F> total{};
    for (int64_t b = 0; b < blocks; ++b) total += load_lanes(partial + b * columns + c, lanes);
    if (accumulate) total += load_lanes(out + c, lanes);
    store_lanes(out + c, lanes, total);
  });
}

}  // namespace trireme::cpu::TRIREME_ISA
