#include "engine/ops/backend/elements.cuda.h"
#include "engine/ops/backend/math.cuda.h"
#include "engine/ops/compression/block_code.kernels.h"

namespace trireme::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;
static_assert(cpu::kScaleSums == kWarp);

__device__ float magnitude(float x) { return fabsf(x); }
__device__ double magnitude(double x) { return fabs(x); }
__device__ int32_t bits_of(float x) { return __float_as_int(x); }
__device__ int64_t bits_of(double x) { return __double_as_longlong(x); }
__device__ float from_bits(int32_t x) { return __int_as_float(x); }
__device__ double from_bits(int64_t x) { return __longlong_as_double(x); }
__device__ int nearest(float x) { return __float2int_rn(x); }
__device__ int nearest(double x) { return __double2int_rn(x); }
// Products that no sum may absorb.
__device__ float product(float a, float b) { return __fmul_rn(a, b); }
__device__ double product(double a, double b) { return __dmul_rn(a, b); }
__device__ float total(float a, float b) { return __fadd_rn(a, b); }
__device__ double total(double a, double b) { return __dadd_rn(a, b); }

template <class T>
__device__ compute_t<T> value_at(const cpu::BlockEncode<T>& a, int64_t i) {
  const compute_t<T> v = to_compute(a.x[i]);
  return a.residual == nullptr ? v : total(v, a.residual[i]);
}

// In every lane: the largest magnitude of elements [begin, begin + width), compared as integers so
// that NaN is the largest, or the mean one for 1 bit.
template <int kBits, class T>
__device__ compute_t<T> statistic(const cpu::BlockEncode<T>& a, int64_t begin, int width) {
  using C = compute_t<T>;
  if constexpr (kBits == 1) {
    C sum = 0;
    for (int i = lane_of_warp(); i < width; i += kWarp)
      sum = total(sum, magnitude(value_at(a, begin + i)));
    return warp_sum(sum) / static_cast<C>(width);
  } else {
    auto max_bits = bits_of(C(0));
    for (int i = lane_of_warp(); i < width; i += kWarp) {
      const auto bits = bits_of(magnitude(value_at(a, begin + i)));
      max_bits = bits > max_bits ? bits : max_bits;
    }
    return from_bits(warp_max(max_bits));
  }
}

// Multiple of the scale nearest to v, and its code.
template <int kBits, class C>
__device__ int nearest_multiple(C v, C inverse) {
  if constexpr (kBits == 1) return v >= 0 ? 1 : -1;
  return nearest(product(v, inverse));
}
template <int kBits>
__device__ unsigned code_of(int multiple) {
  if constexpr (kBits == 8) return static_cast<unsigned>(multiple) & 255u;
  if constexpr (kBits == 4) return static_cast<unsigned>(multiple + 8);
  return multiple > 0 ? 1u : 0u;
}

// Elements of a lane, neighbours: with 4 bits those of a byte.
template <int kBits>
constexpr int kTogether = kBits == 4 ? 2 : 1;

// Stores a lane's codes, whose first element is number i of the block; 0 after its end.
template <int kBits>
__device__ void store_codes(uint8_t* codes, int i, int width, unsigned code) {
  if constexpr (kBits == 1) {
    const int lane = lane_of_warp();
    const unsigned all = __ballot_sync(0xffffffffu, code != 0);
    if (lane % 8 == 0 && i < width) codes[i / 8] = static_cast<uint8_t>(all >> lane);
  } else {
    if (i < width) codes[i / kTogether<kBits>] = static_cast<uint8_t>(code);
  }
}

// One warp per block of the code.
template <int kBits, class T>
__global__ void __launch_bounds__(kThreads) encode_kernel(cpu::BlockEncode<T> a) {
  begin_kernel();
  using C = compute_t<T>;
  const int64_t item =
      static_cast<int64_t>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / kWarp;
  if (item >= a.shape.rows * a.shape.blocks) return;
  const int64_t row = quotient(item, a.shape.blocks);
  const cpu::QuantBlockRange at = cpu::quant_block_range(a.shape, row, item - row * a.shape.blocks);
  const int width = static_cast<int>(at.width);  // at most kMaxQuantBlock
  const float stored = cpu::block_scale(statistic<kBits>(a, at.element, width), kBits);
  const bool finite = stored - stored == 0;
  const auto scale = static_cast<C>(stored);
  const C inverse = stored == 0 || !finite ? C(0) : C(1) / scale;
  if (lane_of_warp() == 0) a.scale[item] = stored;
  constexpr int kStep = kTogether<kBits>;
  for (int first = 0; first < width; first += kWarp * kStep) {
    const int begin = first + lane_of_warp() * kStep;
    unsigned codes = 0;
#pragma unroll
    for (int k = 0; k < kStep; ++k) {
      const int i = begin + k;
      if (!finite || i >= width) continue;
      const C v = value_at(a, at.element + i);
      const int multiple = nearest_multiple<kBits>(v, inverse);
      codes |= code_of<kBits>(multiple) << (k * kBits);
      if (a.residual != nullptr)
        a.residual[at.element + i] = total(v, -product(static_cast<C>(multiple), scale));
    }
    store_codes<kBits>(a.codes + at.code, begin, width, codes);
  }
}

template <int kBits, class T>
__global__ void __launch_bounds__(kThreads) decode_kernel(cpu::BlockDecode<T> a) {
  begin_kernel();
  using C = compute_t<T>;
  const int64_t item =
      static_cast<int64_t>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / kWarp;
  if (item >= a.shape.rows * a.shape.blocks) return;
  const int64_t row = quotient(item, a.shape.blocks);
  const cpu::QuantBlockRange at = cpu::quant_block_range(a.shape, row, item - row * a.shape.blocks);
  const auto scale = static_cast<C>(a.scale[item]);
  const uint8_t* const codes = a.codes + at.code;
  for (int64_t i = lane_of_warp(); i < at.width; i += kWarp) {
    int multiple;
    if constexpr (kBits == 8)
      multiple = static_cast<int8_t>(codes[i]);
    else if constexpr (kBits == 4)
      multiple = (codes[i / 2] >> i % 2 * 4 & 15) - 8;
    else
      multiple = 2 * (codes[i / 8] >> i % 8 & 1) - 1;
    C v = product(static_cast<C>(multiple), scale);
    T* const y = a.y + at.element + i;
    if (a.add) v = total(v, to_compute(*y));
    *y = convert_float<T>(v);
  }
}

// call.operator()<kBits>(grid)
template <class Call>
void for_bits(const cpu::BlockShape& s, Call&& call) {
  const Grid grid{.blocks = {blocks_for(s.rows * s.blocks, kWarps)}, .threads = kThreads};
  if (s.bits == 8) return call.template operator()<8>(grid);
  if (s.bits == 4) return call.template operator()<4>(grid);
  call.template operator()<1>(grid);
}

}  // namespace

template <class T>
void encode_blocks(Context& gpu, const cpu::BlockEncode<T>& a) {
  for_bits(a.shape, [&]<int kBits>(const Grid& grid) {
    launch(gpu, "encode_blocks", encode_kernel<kBits, T>, grid, a);
  });
}

template <class T>
void decode_blocks(Context& gpu, const cpu::BlockDecode<T>& a) {
  for_bits(a.shape, [&]<int kBits>(const Grid& grid) {
    launch(gpu, "decode_blocks", decode_kernel<kBits, T>, grid, a);
  });
}

#define TRIREME_INSTANTIATE(T)                                          \
  template void encode_blocks<T>(Context&, const cpu::BlockEncode<T>&); \
  template void decode_blocks<T>(Context&, const cpu::BlockDecode<T>&);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cuda
