#include <algorithm>

#include "engine/ops/backend/elements.cuda.h"
#include "engine/ops/backend/math.cuda.h"
#include "engine/ops/quantized/nf4.kernels.h"

namespace trireme::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;
constexpr int kWidth = cpu::kNf4Width;
static_assert(kWidth == 2 * kWarp);

struct Bounds {
  float v[cpu::kNf4ValueCount - 1];
};

__device__ unsigned nf4_code(float x, const Bounds& bounds) {
  unsigned code = 0;
#pragma unroll
  for (int k = 0; k + 1 < cpu::kNf4ValueCount; ++k) code += x > bounds.v[k] ? 1u : 0u;
  return code;
}

// One warp per block of weights; a lane reads two neighbours and writes their byte.
template <class T>
__global__ void __launch_bounds__(kThreads)
    encode_kernel(cpu::Nf4Weight<const T> a, int64_t blocks, Bounds bounds) {
  begin_kernel();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t number =
      static_cast<int64_t>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / kWarp;
  if (number >= a.rows * blocks) return;
  const int64_t row = quotient(number, blocks);
  const int64_t column = (number - row * blocks) * kWidth + 2 * lane, at = row * a.columns + column;
  const bool inside = column < a.columns;
  const float even = inside ? convert_float<float>(a.w[at]) : 0.0f;
  const float odd = inside ? convert_float<float>(a.w[at + 1]) : 0.0f;
  const float largest = warp_max(fmaxf(fabsf(even), fabsf(odd)));
  const float inverse = cpu::nf4_inverse(largest);
  if (inside)
    a.codes[at / 2] = static_cast<uint8_t>(nf4_code(even * inverse, bounds) << 4 |
                                           nf4_code(odd * inverse, bounds));
  if (lane == 0) a.scale[number] = largest;
}

// An item is N bytes of two codes; N is 1 if addresses are not aligned to whole packs.
template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    decode_kernel(cpu::Nf4Decode<T> a, cpu::Nf4Tables tables, int64_t packs, int64_t items) {
  begin_kernel();
  __shared__ float values[cpu::kNf4ValueCount], scales[256];
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < cpu::kNf4ValueCount) values[thread] = tables.value[thread];
  scales[thread] = tables.scale[thread];
  __syncthreads();
  const int64_t blocks = quotient(a.columns + kWidth - 1, kWidth);
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t item = static_cast<int64_t>(blockIdx.x) * kThreads + thread; item < items;
       item += step) {
    const int64_t row = quotient(item, packs);
    const int64_t block = (item - row * packs) * (2 * N) / kWidth;
    const float scale = cpu::nf4_scale_at(a.scales, scales, row, block, blocks);
    const auto codes = load_pack<uint8_t, N>(a.codes, item);
    Pack<T, 2 * N> e;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const unsigned two = codes.v[i];
      e.v[2 * i] = convert_float<T>(values[two >> 4] * scale);
      e.v[2 * i + 1] = convert_float<T>(values[two & 15u] * scale);
    }
    if constexpr (N > 1) {
      store_pack<T, 2 * N>(a.w, item, e);
    } else {
      a.w[2 * item] = e.v[0];
      a.w[2 * item + 1] = e.v[1];
    }
  }
}

}  // namespace

template <class T>
void quantize_nf4(Context& gpu, const cpu::Nf4Weight<const T>& a) {
  const int64_t blocks = blocks_for(a.columns, kWidth);
  Bounds bounds;
  for (int k = 0; k + 1 < cpu::kNf4ValueCount; ++k) bounds.v[k] = cpu::nf4_bound(k);
  const Grid grid{.blocks = {blocks_for(a.rows * blocks, kWarps)}, .threads = kThreads};
  launch(gpu, "quantize_nf4", encode_kernel<T>, grid, a, blocks, bounds);
}

// Eight elements per item: 16 bytes of the usual 16-bit types.
template <class T>
void dequantize_nf4(Context& gpu, const cpu::Nf4Decode<T>& a, const cpu::Nf4Tables& tables) {
  constexpr int kBytes = 4;
  constexpr int64_t kBlocksAMultiprocessor = 32;  // four times the resident blocks
  const bool aligned = reinterpret_cast<uintptr_t>(a.w) % 16 == 0 &&
                       reinterpret_cast<uintptr_t>(a.codes) % kBytes == 0 &&
                       a.columns % (2 * kBytes) == 0;
  const auto run = [&]<int N>() {
    const int64_t packs = a.columns / (2 * N), items = a.rows * packs;
    const int64_t most = kBlocksAMultiprocessor * gpu.info.multiprocessors;
    const Grid grid{.blocks = {std::min(blocks_for(items, kThreads), most)}, .threads = kThreads};
    launch(gpu, "dequantize_nf4", decode_kernel<T, N>, grid, a, tables, packs, items);
  };
  aligned ? run.template operator()<kBytes>() : run.template operator()<1>();
}

#define TRIREME_INSTANTIATE(T)                                             \
  template void quantize_nf4<T>(Context&, const cpu::Nf4Weight<const T>&); \
  template void dequantize_nf4<T>(Context&, const cpu::Nf4Decode<T>&, const cpu::Nf4Tables&);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cuda
