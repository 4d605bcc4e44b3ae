// Kernels of engine/ops/compression/sparse_code.h.
#pragma once

#include "engine/core/convert_float.h"
#include "engine/core/device_memory.h"
#include "engine/core/random.h"
#include "engine/ops/backend/isa.h"

namespace trireme::cpu {

inline constexpr int64_t kMaxSparseWidth = 16384;  // columns of a block

struct SparseShape {
  int64_t rows, columns, block;
  int64_t blocks;                     // per row
  int64_t kept, last_kept, row_kept;  // of a block, of a row's last block, of a row
};

template <class T>
struct SelectLargest {
  uint16_t* index;
  const T* x;
  const compute_t<T>* residual;  // may be null
  SparseShape shape;
};
struct SelectRandom {
  uint16_t* index;
  RandomKey key;
  int64_t first, stride;  // numbers of blocks
  SparseShape shape;
};
template <class T>
struct GatherSelected {
  compute_t<T>* values;
  const uint16_t* index;
  const T* x;
  compute_t<T>* residual;  // may be null
  SparseShape shape;
};
template <class T>
struct ScatterSelected {
  T* y;
  const compute_t<T>* values;
  const uint16_t* index;
  SparseShape shape;
  bool add;
};

TRIREME_CPU_KERNEL(select_largest, (const SelectLargest<T>& a, int threads))
TRIREME_CPU_KERNEL(select_random, (const T& a, int threads))  // T: SelectRandom
TRIREME_CPU_KERNEL(gather_selected, (const GatherSelected<T>& a, int threads))
TRIREME_CPU_KERNEL(scatter_selected, (const ScatterSelected<T>& a, int threads))

// --- shared by the CPU and GPU kernels ---

// Elements of a block of a row, and those of them that are selected.
struct SparseBlockRange {
  int64_t element, selected;  // the first ones, of x and of index
  int64_t width, kept;
};
TRIREME_HOST_DEVICE [[gnu::always_inline]] inline SparseBlockRange sparse_block_range(
    const SparseShape& s, int64_t row, int64_t block) {
  const int64_t first = block * s.block, left = s.columns - first;
  return {row * s.columns + first, row * s.row_kept + block * s.kept,
          left < s.block ? left : s.block, block + 1 == s.blocks ? s.last_kept : s.kept};
}

}  // namespace trireme::cpu

// GPU kernels.
namespace trireme::cuda {

struct Context;  // engine/device/context.h

template <class T>
TRIREME_CUDA_DECL void select_largest(Context& gpu, const cpu::SelectLargest<T>& a);
TRIREME_CUDA_DECL void select_random(Context& gpu, const cpu::SelectRandom& a);
template <class T>
TRIREME_CUDA_DECL void gather_selected(Context& gpu, const cpu::GatherSelected<T>& a);
template <class T>
TRIREME_CUDA_DECL void scatter_selected(Context& gpu, const cpu::ScatterSelected<T>& a);

}  // namespace trireme::cuda
