// Addresses of scales and codes in a block-quantized weight
// (engine/ops/quantized/quantized_weight.kernels.h). For CUDA sources only.
#pragma once

#include "engine/ops/backend/kernel.cuda.h"
#include "engine/ops/quantized/quantized_weight.kernels.h"

namespace trireme::cuda {

inline constexpr int kBlock = static_cast<int>(cpu::kBlockColumns);
inline constexpr int kGroup = static_cast<int>(cpu::kGroupRows);

// Returns the bytes of one block of a group of 16 rows. w: the matrix; blocks: per row.
__device__ inline const uint8_t* group_block(const uint8_t* w, bool four_bits, int64_t blocks,
                                             int64_t group, int64_t block) {
  return w + (group * blocks + block) * cpu::group_block_bytes(four_bits);
}
// Returns the scale of a row, [0, 16), of the group. bytes: from group_block().
__device__ inline float scale_of(const uint8_t* bytes, int row) {
  return static_cast<float>(reinterpret_cast<const f16*>(bytes)[row]);
}
// Returns a row's word of piece v: the codes of the block's columns 4 v .. 4 v + 3 and, with 4
// bits, also of columns 4 v + 16 .. 4 v + 19. row, bytes: as in scale_of().
__device__ inline uint32_t word_of(const uint8_t* bytes, int row, int v) {
  return reinterpret_cast<const uint32_t*>(bytes + cpu::kGroupScaleBytes +
                                           v * cpu::kPieceBytes)[row];
}

}  // namespace trireme::cuda
