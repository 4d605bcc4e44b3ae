#include "engine/ops/backend/elements.cuda.h"
#include "engine/ops/backend/math.cuda.h"
#include "engine/ops/quantized/quantize.kernels.h"

namespace trireme::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;
constexpr int kGroup = 128, kPairs = kGroup / 2, kOfALane = kPairs / kWarp;

// One thread block per row.
template <class T>
__global__ void __launch_bounds__(kThreads) int8_kernel(cpu::Int8Weight<const T> a) {
  begin_kernel();
  __shared__ float shared[kWarp];
  const int64_t row = static_cast<int64_t>(blockIdx.x) * a.columns;
  float largest = 0;
  for (int64_t c = threadIdx.x; c < a.columns; c += kThreads) {
    const float magnitude = fabsf(convert_float<float>(a.w[row + c]));
    largest = magnitude > largest ? magnitude : largest;
  }
  const float scale = cpu::integer_scale(block_max(largest, shared), 127.0f);
  for (int64_t c = threadIdx.x; c < a.columns; c += kThreads)
    a.codes[row + c] = cpu::int8_code(convert_float<float>(a.w[row + c]), scale);
  if (threadIdx.x == 0) a.scale[blockIdx.x] = scale;
}

// One warp per group; a lane reads two neighbours and writes their byte.
template <class T>
__global__ void __launch_bounds__(kThreads)
    int4_kernel(cpu::Int4Weight<const T> a, int64_t groups) {
  begin_kernel();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t group =
      static_cast<int64_t>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / kWarp;
  if (group >= a.rows * groups) return;
  const int64_t row = quotient(group, groups);
  const int64_t first = (group - row * groups) * kGroup, at = row * a.columns + first;
  float low = -kLowest<float>, high = kLowest<float>;
  float even[kOfALane] = {}, odd[kOfALane] = {};
#pragma unroll
  for (int i = 0; i < kOfALane; ++i) {
    const int64_t c = 2 * (lane + i * kWarp);
    if (first + c >= a.columns) continue;
    even[i] = convert_float<float>(a.w[at + c]);
    odd[i] = convert_float<float>(a.w[at + c + 1]);
    low = fminf(low, fminf(even[i], odd[i]));
    high = fmaxf(high, fmaxf(even[i], odd[i]));
  }
  low = -warp_max(-low);
  high = warp_max(high);
  const cpu::Int4Scale scale = cpu::int4_scale(low, high, a.minimum == nullptr);
#pragma unroll
  for (int i = 0; i < kOfALane; ++i) {
    const int64_t c = 2 * (lane + i * kWarp);
    if (first + c < a.columns)
      a.codes[(at + c) / 2] = static_cast<uint8_t>(scale.code(even[i]) | scale.code(odd[i]) << 4);
  }
  if (lane != 0) return;
  a.scale[group] = scale.scale;
  if (a.minimum != nullptr) a.minimum[group] = low;
}

template <class T, int N>
struct DecodeInt8 {
  cpu::Int8Weight<T> a;
  int64_t packs;  // per row
  __device__ void operator()(int64_t item) const {
    const float scale = a.scale[quotient(item, packs)];
    const auto codes = load_pack<uint8_t, N>(a.codes, item);
    Pack<T, N> e;
#pragma unroll
    for (int i = 0; i < N; ++i) e.v[i] = convert_float<T>(cpu::int8_value(codes.v[i], scale));
    store_pack<T, N>(a.w, item, e);
  }
};

// N bytes with two codes each; N is 1 if addresses are not aligned to whole packs.
template <class T, int N>
struct DecodeInt4 {
  cpu::Int4Weight<T> a;
  int64_t packs, groups;  // per row
  __device__ void operator()(int64_t item) const {
    const int64_t row = quotient(item, packs);
    const int64_t group = row * groups + (item - row * packs) * (2 * N) / kGroup;
    const bool symmetric = a.minimum == nullptr;
    const cpu::Int4Scale scale{a.scale[group], symmetric ? 0.0f : a.minimum[group], symmetric};
    const auto codes = load_pack<uint8_t, N>(a.codes, item);
    Pack<T, 2 * N> e;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      e.v[2 * i] = convert_float<T>(scale.value(codes.v[i]));
      e.v[2 * i + 1] = convert_float<T>(scale.value(static_cast<unsigned>(codes.v[i]) >> 4));
    }
    if constexpr (N > 1) {
      store_pack<T, 2 * N>(a.w, item, e);
    } else {
      a.w[2 * item] = e.v[0];
      a.w[2 * item + 1] = e.v[1];
    }
  }
};

}  // namespace

template <class T>
void quantize_int8(Context& gpu, const cpu::Int8Weight<const T>& a) {
  launch(gpu, "quantize_int8", int8_kernel<T>, {.blocks = {a.rows}, .threads = kThreads}, a);
}

template <class T>
void dequantize_int8(Context& gpu, const cpu::Int8Weight<T>& a) {
  with_pack<T>(
      a.columns,
      [&]<int N>() {
        const int64_t packs = a.columns / N;
        for_each_item(gpu, "dequantize_int8", a.rows * packs, DecodeInt8<T, N>{a, packs});
      },
      a.w, reinterpret_cast<const T*>(a.codes));
}

template <class T>
void quantize_int4(Context& gpu, const cpu::Int4Weight<const T>& a) {
  const int64_t groups = blocks_for(a.columns, kGroup);
  const Grid grid{.blocks = {blocks_for(a.rows * groups, kWarps)}, .threads = kThreads};
  launch(gpu, "quantize_int4", int4_kernel<T>, grid, a, groups);
}

// Eight elements per item: 16 bytes of the usual 16-bit types.
template <class T>
void dequantize_int4(Context& gpu, const cpu::Int4Weight<T>& a) {
  constexpr int kBytes = 4;
  const int64_t groups = blocks_for(a.columns, kGroup);
  const bool aligned = reinterpret_cast<uintptr_t>(a.w) % 16 == 0 &&
                       reinterpret_cast<uintptr_t>(a.codes) % kBytes == 0 &&
                       a.columns % (2 * kBytes) == 0;
  const auto run = [&]<int N>() {
    const int64_t packs = a.columns / (2 * N);
    for_each_item(gpu, "dequantize_int4", a.rows * packs, DecodeInt4<T, N>{a, packs, groups});
  };
  aligned ? run.template operator()<kBytes>() : run.template operator()<1>();
}

#define TRIREME_INSTANTIATE(T)                                               \
  template void quantize_int8<T>(Context&, const cpu::Int8Weight<const T>&); \
  template void dequantize_int8<T>(Context&, const cpu::Int8Weight<T>&);     \
  template void quantize_int4<T>(Context&, const cpu::Int4Weight<const T>&); \
  template void dequantize_int4<T>(Context&, const cpu::Int4Weight<T>&);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cuda
