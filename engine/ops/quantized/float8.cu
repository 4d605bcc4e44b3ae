#include "engine/ops/backend/elements.cuda.h"
#include "engine/ops/quantized/float8.kernels.h"

namespace trireme::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;
constexpr int kBlock = 128, kOfALane = kBlock / kWarp;

// On integers: the maximum does not depend on the order of comparison.
template <class T, int N>
__global__ void __launch_bounds__(kThreads) amax_kernel(float* out, const T* x, int64_t n) {
  begin_kernel();
  __shared__ uint32_t shared[kWarp];
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  uint32_t largest = 0;
  for (int64_t p = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; p < n / N;
       p += step) {
    const auto e = load_pack<T, N>(x, p);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const uint32_t bits = cpu::magnitude_bits(e.v[i]);
      largest = bits > largest ? bits : largest;
    }
  }
  largest = block_max(largest, shared);
  if (threadIdx.x == 0) atomicMax(reinterpret_cast<unsigned*>(out), largest);
}

// One block per tensor.
__global__ void __launch_bounds__(kThreads) scales_kernel(cpu::Float8Scales a) {
  begin_kernel();
  __shared__ uint32_t shared[kWarp];
  const int64_t t = blockIdx.x;
  const float newest = a.amax[t];
  if (a.history != nullptr && newest - newest != 0.0f) return;
  uint32_t largest = cpu::magnitude_bits(newest);
  if (a.history != nullptr) {
    auto* const old = dynamic_shared<float>();
    float* const row = a.history + t * a.length;
    for (int64_t i = threadIdx.x; i < a.length; i += kThreads) old[i] = row[i];
    __syncthreads();
    for (int64_t i = threadIdx.x; i < a.length; i += kThreads) {
      const float value = i == 0 ? newest : old[i - 1];
      row[i] = value;
      const uint32_t bits = cpu::magnitude_bits(value);
      largest = bits > largest ? bits : largest;
    }
  }
  largest = block_max(largest, shared);
  if (threadIdx.x == 0)
    a.scale[t] = cpu::float8_scale(a.largest, __uint_as_float(largest), a.margin,
                                   a.history != nullptr ? a.scale[t] : 1.0f);
}

// The product must not be fused with the additions of the conversion.
template <class F, class T>
__device__ uint8_t encode(T x, float scale) {
  return F(__fmul_rn(convert_float<float>(x), scale)).bits;
}

template <class F, class T, int N>
struct Encode {
  cpu::QuantizeFloat8<T> a;
  int64_t packs;
  __device__ void operator()(int64_t item) const {
    const float scale = *a.scale;
    if (item == 0) *a.inverse = 1.0f / scale;
    if (item >= packs) return;  // no elements
    const auto e = load_pack<T, N>(a.x, item);
    Pack<uint8_t, N> codes;
#pragma unroll
    for (int i = 0; i < N; ++i) codes.v[i] = encode<F>(e.v[i], scale);
    store_pack<uint8_t, N>(a.codes, item, codes);
  }
};

// Clears the end of a row of block scales, after the last block.
__device__ void clear_rest(float* inverse, int64_t row, int64_t columns) {
  const int64_t length = cpu::float8_blocks_in_row(columns);
  const int64_t i = (columns + kBlock - 1) / kBlock + threadIdx.x;
  if (i < length) inverse[row * length + i] = 0;
}

// One warp per row of 128 elements, or one block per 128 rows of them.
template <class F, class T, bool kRows>
__global__ void __launch_bounds__(kThreads) groups_kernel(cpu::QuantizeFloat8<T> a) {
  begin_kernel();
  __shared__ uint32_t shared[kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) * (kRows ? kWarps : kBlock);
  const int64_t column = static_cast<int64_t>(blockIdx.y) * kBlock + lane;
  const int64_t limit = first_row + (kRows ? kWarps : kBlock);
  const int64_t end_row = limit < a.rows ? limit : a.rows;
  if (!kRows && blockIdx.y == gridDim.y - 1) clear_rest(a.inverse, blockIdx.x, a.columns);
  uint32_t largest = 0;
  for (int64_t r = first_row + warp; r < end_row; r += kWarps) {
#pragma unroll
    for (int i = 0; i < kOfALane; ++i) {
      const int64_t c = column + i * kWarp;
      const uint32_t bits = c < a.columns ? cpu::magnitude_bits(a.x[r * a.columns + c]) : 0;
      largest = bits > largest ? bits : largest;
    }
  }
  largest = kRows ? warp_max(largest) : block_max(largest, shared);
  const float scale = cpu::float8_scale(float8_max(a.format), __uint_as_float(largest), 1.0f, 1.0f);
  for (int64_t r = first_row + warp; r < end_row; r += kWarps) {
#pragma unroll
    for (int i = 0; i < kOfALane; ++i) {
      const int64_t c = column + i * kWarp;
      if (c < a.columns) a.codes[r * a.columns + c] = encode<F>(a.x[r * a.columns + c], scale);
    }
    if (lane == 0 && (kRows || r == first_row))
      a.inverse[cpu::float8_group(a.group_rows, a.rows, a.columns, r, column)] = 1.0f / scale;
  }
}

// Scales of the columns of a tile: one each, or one for all. All threads get their four.
template <class T>
__device__ void tile_scales(const cpu::QuantizeFloat8<T>& a, int64_t first_row, int64_t end_row,
                            int64_t column, int warp, uint32_t (*of_warp)[kBlock],
                            float (&scales)[kOfALane]) {
  uint32_t largest[kOfALane] = {};
  for (int64_t r = first_row + warp; r < end_row; r += kWarps) {
#pragma unroll
    for (int i = 0; i < kOfALane; ++i) {
      const int64_t c = column + i * kWarp;
      const uint32_t bits = c < a.columns ? cpu::magnitude_bits(a.x[r * a.columns + c]) : 0;
      largest[i] = bits > largest[i] ? bits : largest[i];
    }
  }
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int i = 0; i < kOfALane; ++i) of_warp[warp][lane + i * kWarp] = largest[i];
  __syncthreads();
  uint32_t of_all = 0;
#pragma unroll
  for (int i = 0; i < kOfALane; ++i) {
    for (int w = 0; w < kWarps; ++w) {
      const uint32_t bits = of_warp[w][lane + i * kWarp];
      largest[i] = bits > largest[i] ? bits : largest[i];
    }
    of_all = largest[i] > of_all ? largest[i] : of_all;
  }
  of_all = warp_max(of_all);
#pragma unroll
  for (int i = 0; i < kOfALane; ++i) {
    const uint32_t bits = a.group_rows == 1 ? largest[i] : of_all;
    scales[i] = cpu::float8_scale(float8_max(a.format), __uint_as_float(bits), 1.0f, 1.0f);
  }
}

// A block transposes a tile of 128 by 128: it reads along the rows of x and writes along those of
// codes.
template <class F, class T>
__global__ void __launch_bounds__(kThreads) transposed_kernel(cpu::QuantizeFloat8<T> a) {
  begin_kernel();
  // Four bytes of padding: neighbours in a column are in different banks.
  __shared__ uint8_t tile[kBlock][kBlock + 4];
  __shared__ uint32_t of_warp[kWarps][kBlock];
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) * kBlock,
                first_column = static_cast<int64_t>(blockIdx.y) * kBlock;
  const int64_t end_row = first_row + kBlock < a.rows ? first_row + kBlock : a.rows;
  float scales[kOfALane];
  if (a.group_rows == 0) {
#pragma unroll
    for (int i = 0; i < kOfALane; ++i) scales[i] = *a.scale;
    if (blockIdx.x + blockIdx.y + threadIdx.x == 0) *a.inverse = 1.0f / *a.scale;
  } else {
    tile_scales(a, first_row, end_row, first_column + lane, warp, of_warp, scales);
    if (a.group_rows != 1 && blockIdx.x == gridDim.x - 1) clear_rest(a.inverse, blockIdx.y, a.rows);
  }
  for (int64_t r = first_row + warp; r < end_row; r += kWarps) {
#pragma unroll
    for (int i = 0; i < kOfALane; ++i) {
      const int64_t c = first_column + lane + i * kWarp;
      if (c < a.columns)
        tile[lane + i * kWarp][r - first_row] = encode<F>(a.x[r * a.columns + c], scales[i]);
    }
  }
  if (warp == 0 && a.group_rows != 0) {
#pragma unroll
    for (int i = 0; i < kOfALane; ++i) {
      const int64_t c = first_column + lane + i * kWarp;
      if (c < a.columns && (a.group_rows == 1 || c == first_column))
        a.inverse[cpu::float8_group(a.group_rows, a.columns, a.rows, c, first_row)] =
            1.0f / scales[i];
    }
  }
  __syncthreads();
  for (int i = warp; i < kBlock && first_column + i < a.columns; i += kWarps)
    for (int64_t r = first_row + lane; r < end_row; r += kWarp)
      a.codes[(first_column + i) * a.rows + r] = tile[i][r - first_row];
}

template <class F, class T, int N>
struct Decode {
  cpu::DequantizeFloat8<T> a;
  int64_t packs;  // per row
  __device__ void operator()(int64_t item) const {
    const int64_t row = quotient(item, packs);
    const int64_t column = (item - row * packs) * N;
    const float inverse =
        a.inverse[cpu::float8_group(a.group_rows, a.rows, a.columns, row, column)];
    const auto codes = load_pack<uint8_t, N>(a.codes, item);
    Pack<T, N> e;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      F value;
      value.bits = codes.v[i];
      e.v[i] = convert_float<T>(static_cast<float>(value) * inverse);
    }
    store_pack<T, N>(a.y, item, e);
  }
};

template <class Call>
void with_format(Float8Format format, Call&& call) {
  if (format == Float8Format::kE4M3)
    call.template operator()<fp8_e4m3>();
  else
    call.template operator()<fp8_e5m2>();
}

}  // namespace

template <class T>
void amax(Context& gpu, float* out, const T* x, int64_t n, bool accumulate) {
  if (!accumulate) fill_bytes(gpu, gpu.main, out, 0, sizeof(float));
  with_pack<T>(
      n,
      [&]<int N>() {
        const Grid grid{.blocks = {grid_blocks(gpu, n / N, kThreads)}, .threads = kThreads};
        launch(gpu, "amax", amax_kernel<T, N>, grid, out, x, n);
      },
      x);
}

void update_float8_scales(Context& gpu, const cpu::Float8Scales& a) {
  const Grid grid{.blocks = {a.tensors},
                  .threads = kThreads,
                  .shared = a.length * static_cast<int64_t>(sizeof(float))};
  launch(gpu, "update_float8_scales", scales_kernel, grid, a);
}

template <class T>
void quantize_float8(Context& gpu, const cpu::QuantizeFloat8<T>& a) {
  with_format(a.format, [&]<class F>() {
    if (a.group_rows == 0) {
      with_pack<T>(
          a.columns,
          [&]<int N>() {
            const int64_t packs = a.columns / N;
            for_each_item(gpu, "quantize_float8", packs > 0 ? packs : 1, Encode<F, T, N>{a, packs});
          },
          a.x, reinterpret_cast<const T*>(a.codes));
      return;
    }
    const bool rows = a.group_rows == 1;
    const Grid grid{
        .blocks = {blocks_for(a.rows, rows ? kWarps : kBlock), blocks_for(a.columns, kBlock), 1},
        .threads = kThreads};
    rows ? launch(gpu, "quantize_float8_rows", groups_kernel<F, T, true>, grid, a)
         : launch(gpu, "quantize_float8_blocks", groups_kernel<F, T, false>, grid, a);
  });
}

template <class T>
void quantize_float8_transposed(Context& gpu, const cpu::QuantizeFloat8<T>& a) {
  // One block if there are no elements: it writes the factor of all.
  const Grid grid{.blocks = {std::max<int64_t>(1, blocks_for(a.rows, kBlock)),
                             std::max<int64_t>(1, blocks_for(a.columns, kBlock)), 1},
                  .threads = kThreads};
  with_format(a.format, [&]<class F>() {
    launch(gpu, "quantize_float8_transposed", transposed_kernel<F, T>, grid, a);
  });
}

template <class T>
void dequantize_float8(Context& gpu, const cpu::DequantizeFloat8<T>& a) {
  with_format(a.format, [&]<class F>() {
    with_pack<T>(
        a.columns,
        [&]<int N>() {
          const int64_t packs = a.columns / N;
          for_each_item(gpu, "dequantize_float8", a.rows * packs, Decode<F, T, N>{a, packs});
        },
        a.y, reinterpret_cast<const T*>(a.codes));
  });
}

#define TRIREME_INSTANTIATE(T)                                                          \
  template void amax<T>(Context&, float*, const T*, int64_t, bool);                     \
  template void quantize_float8<T>(Context&, const cpu::QuantizeFloat8<T>&);            \
  template void quantize_float8_transposed<T>(Context&, const cpu::QuantizeFloat8<T>&); \
  template void dequantize_float8<T>(Context&, const cpu::DequantizeFloat8<T>&);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cuda
