#include "engine/core/convert_float.h"
#include "engine/device/mma.h"
#include "engine/ops/quantized/block_bytes.cuda.h"
#include "engine/ops/quantized/quantized_weight.kernels.h"

namespace trireme::cuda {
namespace {

constexpr int kProductThreads = 256, kProductWarps = kProductThreads / kWarp;
constexpr int kTileRows = 8;  // of x, in a tensor-core product

// A lane's part of a block of the weight: codes of rows g and g + 8, and their scales.
template <bool kFour>
struct WeightBlock {
  uint32_t words[kFour ? 2 : 4];
  float scale[2];

  __device__ void load(const uint8_t* from) {
    const int g = lane_of_warp() / 4, t = lane_of_warp() % 4;
#pragma unroll
    for (int i = 0; i < (kFour ? 2 : 4); ++i)
      words[i] = word_of(from, g + i % 2 * 8, t + i / 2 * 4);
    scale[0] = scale_of(from, g);
    scale[1] = scale_of(from, g + 8);
  }
  // The a fragment; for 4 bits 8 more than the numbers.
  __device__ void fragment(uint32_t (&a)[4]) const {
    if constexpr (kFour) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        a[i] = words[i] & 0x0f0f0f0fu;
        a[i + 2] = words[i] >> 4 & 0x0f0f0f0fu;
      }
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) a[i] = words[i];
    }
  }
};

// total[j] += the products of a block of the weight with rows 8 j .. of x, from row m0 on.
template <bool kFour, int kTiles, class T>
__device__ void add_block(float (&total)[kTiles][4], const WeightBlock<kFour>& w,
                          const cpu::BlockProduct<T>& a, int64_t m0, int64_t block) {
  const int g = lane_of_warp() / 4, t = lane_of_warp() % 4;
  uint32_t left[4];
  w.fragment(left);
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    const int64_t row = m0 + kTileRows * j + g;
    uint32_t right[2] = {0, 0};
    if (row < a.m) {
      const auto* const codes =
          reinterpret_cast<const uint32_t*>(a.x + (row * a.blocks + block) * kBlock);
      right[0] = codes[t];
      right[1] = codes[t + 4];
    }
    float scale[2] = {0, 0};
    int32_t sums[4] = {0, 0, 0, 0};
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int64_t column = m0 + kTileRows * j + 2 * t + e;
      if (column >= a.m) continue;
      scale[e] = a.x_scale[column * a.blocks + block];
      if constexpr (kFour) sums[e] = sums[e + 2] = -8 * a.x_sum[column * a.blocks + block];
    }
    mma_m16n8k32(sums, left, right);
#pragma unroll
    for (int e = 0; e < 4; ++e)
      total[j][e] += static_cast<float>(sums[e]) * (w.scale[e / 2] * scale[e % 2]);
  }
}

// 16 outputs of 8 kTiles rows of x: warp i has the blocks i, i + 8, ..., kAhead of which are loaded
// before the first is used (as many as the registers of every architecture can hold).
template <class T, bool kFour, int kTiles>
__global__ void __launch_bounds__(kProductThreads, 2) block_product_kernel(cpu::BlockProduct<T> a) {
  begin_kernel();
  constexpr int kAhead = kTiles < 4 ? 4 : 2, kColumns = kTileRows * kTiles;
  __shared__ float shared[kProductWarps][kGroup][kColumns];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int g = lane_of_warp() / 4, t = lane_of_warp() % 4;
  const int64_t group = blockIdx.x, m0 = static_cast<int64_t>(blockIdx.y) * kColumns;
  float total[kTiles][4] = {};
  for (int64_t first = warp; first < a.blocks; first += kAhead * kProductWarps) {
    WeightBlock<kFour> w[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int64_t block = first + i * kProductWarps;
      if (block < a.blocks) w[i].load(group_block(a.w, kFour, a.blocks, group, block));
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int64_t block = first + i * kProductWarps;
      if (block < a.blocks) add_block<kFour, kTiles>(total, w[i], a, m0, block);
    }
  }
#pragma unroll
  for (int j = 0; j < kTiles; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      shared[warp][g + e / 2 * 8][kTileRows * j + 2 * t + e % 2] = total[j][e];
  __syncthreads();
  for (int at = static_cast<int>(threadIdx.x); at < kGroup * kColumns; at += kProductThreads) {
    const int row = at % kGroup, column = at / kGroup;
    const int64_t n = group * kGroup + row, m = m0 + column;
    if (n >= a.n || m >= a.m) continue;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kProductWarps; ++i) sum += shared[i][row][column];
    if (a.bias != nullptr) sum += static_cast<float>(a.bias[n]);
    a.y[m * a.y_stride + n] = convert_float<T>(sum);
  }
}

template <class T, bool kFour, int kTiles>
void start_product(Context& gpu, const cpu::BlockProduct<T>& a) {
  launch(gpu, "block_product", block_product_kernel<T, kFour, kTiles>,
         {.blocks = {blocks_for(a.n, kGroup), blocks_for(a.m, kTileRows * kTiles)},
          .threads = kProductThreads},
         a);
}

template <class T, bool kFour>
void start_product(Context& gpu, const cpu::BlockProduct<T>& a) {
  if (a.m <= kTileRows) return start_product<T, kFour, 1>(gpu, a);
  if (a.m <= 2 * kTileRows) return start_product<T, kFour, 2>(gpu, a);
  start_product<T, kFour, 4>(gpu, a);
}

}  // namespace

template <class T>
void block_product(Context& gpu, const cpu::BlockProduct<T>& a) {
  a.four_bits ? start_product<T, true>(gpu, a) : start_product<T, false>(gpu, a);
}

template void block_product<float>(Context&, const cpu::BlockProduct<float>&);
template void block_product<bf16>(Context&, const cpu::BlockProduct<bf16>&);
template void block_product<f16>(Context&, const cpu::BlockProduct<f16>&);

}  // namespace trireme::cuda
