#include "engine/core/parallel_for.h"
#include "engine/ops/backend/simd.cpu.h"
#include "engine/ops/quantized/quantized_weight.kernels.h"

#if defined(TRIREME_ISA_avx512) && defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512vnni"))), apply_to = function)
#elif defined(TRIREME_ISA_avx512)
#pragma GCC push_options
#pragma GCC target("avx512vnni")
#endif

namespace trireme::cpu::TRIREME_ISA {
namespace {

constexpr int64_t kGrainBytes = 1 << 15;  // of weight: less is not worth waking a thread
constexpr int kHalvesBytes = kLanes<float> * static_cast<int>(sizeof(f16));  // scales of a vector
constexpr int kParts = static_cast<int>(kGroupRows) / kLanes<float>;  // vectors of a group's rows
// Rows of x that share a pass over a group: as many as have their sums in registers.
#if defined(TRIREME_ISA_avx512)
constexpr int kTile = 8;
#else
constexpr int kTile = 4;
#endif
// Copies of a loop's body: all of them if the sums are in registers. In scalar code that would be
// 4,096 products, which take half a minute to compile and are no faster.
#if defined(TRIREME_ISA_portable)
constexpr int kCopies = 1;
#else
constexpr int kCopies = 8;
#endif

using Floats = Vec<float>;
using Ints = Vec<int32_t>;
using Shorts = Vec<int16_t>;
using Bytes = Vec<int8_t>;

template <class V>
TRIREME_INLINE V load_raw(const void* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}

// The four codes of x, in every lane of 32 bits.
TRIREME_INLINE Bytes broadcast_codes(const int8_t* p) {
  int32_t four;
  __builtin_memcpy(&four, p, sizeof four);
  return __builtin_bit_cast(Bytes, Ints{} + four);
}

// Sums of a block: lane i of the result is the sum over 32 columns of the integer products of row i
// and x. start() and finish() receive the sum of x's codes, needed for codes with an offset.
#if defined(TRIREME_ISA_avx512)

struct Dot8 {
  using Sum = Ints;
  // One operand of the instruction is unsigned: 128 is added to the weights' codes.
  TRIREME_INLINE static Sum start(int32_t x_sum) { return Ints{} - 128 * x_sum; }
  TRIREME_INLINE static void add(Sum& sum, Bytes w, Bytes x) {
    const auto above = __builtin_bit_cast(__m512i, w) ^ _mm512_set1_epi8(-128);
    sum = __builtin_bit_cast(Ints, _mm512_dpbusd_epi32(__builtin_bit_cast(__m512i, sum), above,
                                                       __builtin_bit_cast(__m512i, x)));
  }
  TRIREME_INLINE static Ints finish(Sum sum, int32_t) { return sum; }
};
struct Dot4 {
  using Sum = Ints;
  TRIREME_INLINE static Sum start(int32_t x_sum) { return Ints{} - 8 * x_sum; }
  TRIREME_INLINE static void add(Sum& sum, Bytes w, Bytes x) {
    sum = __builtin_bit_cast(
        Ints, _mm512_dpbusd_epi32(__builtin_bit_cast(__m512i, sum), __builtin_bit_cast(__m512i, w),
                                  __builtin_bit_cast(__m512i, x)));
  }
  TRIREME_INLINE static Ints finish(Sum sum, int32_t) { return sum; }
};

#elif defined(TRIREME_ISA_avx2)

TRIREME_INLINE Ints add_pairs(__m256i pairs) {
  return __builtin_bit_cast(Ints, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
struct Dot8 {
  using Sum = Ints;
  TRIREME_INLINE static Sum start(int32_t) { return Sum{}; }
  // One operand of the instruction is unsigned: the sign of x is applied to the weights. Both are
  // at most 127, so that two products fit into 16 bits.
  TRIREME_INLINE static void add(Sum& sum, Bytes w, Bytes x) {
    const auto codes = __builtin_bit_cast(__m256i, x);
    sum += add_pairs(_mm256_maddubs_epi16(_mm256_abs_epi8(codes),
                                          _mm256_sign_epi8(__builtin_bit_cast(__m256i, w), codes)));
  }
  TRIREME_INLINE static Ints finish(Sum sum, int32_t) { return sum; }
};
struct Dot4 {
  using Sum = Shorts;  // 16 products of at most 15 * 127
  TRIREME_INLINE static Sum start(int32_t) { return Sum{}; }
  TRIREME_INLINE static void add(Sum& sum, Bytes w, Bytes x) {
    sum += __builtin_bit_cast(Shorts, _mm256_maddubs_epi16(__builtin_bit_cast(__m256i, w),
                                                           __builtin_bit_cast(__m256i, x)));
  }
  TRIREME_INLINE static Ints finish(Sum sum, int32_t x_sum) {
    return add_pairs(__builtin_bit_cast(__m256i, sum)) - 8 * x_sum;
  }
};

#else

struct Dot8 {
  using Sum = Ints;
  TRIREME_INLINE static Sum start(int32_t) { return Sum{}; }
  TRIREME_INLINE static void add(Sum& sum, Bytes w, Bytes x) {
    int32_t products[kLanes<int32_t>] = {};
    for (int i = 0; i < kLanes<int32_t>; ++i)
      for (int j = 0; j < 4; ++j) products[i] += int32_t{w[4 * i + j]} * int32_t{x[4 * i + j]};
    sum += load_raw<Ints>(products);
  }
  TRIREME_INLINE static Ints finish(Sum sum, int32_t) { return sum; }
};
struct Dot4 : Dot8 {
  TRIREME_INLINE static Ints finish(Sum sum, int32_t x_sum) { return sum - 8 * x_sum; }
};

#endif

TRIREME_INLINE Bytes lower_half(Bytes two) { return two & int8_t{15}; }
TRIREME_INLINE Bytes upper_half(Bytes two) {
  return __builtin_bit_cast(Bytes, __builtin_bit_cast(Vec<uint16_t>, two) >> 4) & int8_t{15};
}

template <class Dot, int M, class Sum>
TRIREME_INLINE void add_piece(Sum (&sums)[M][kParts], int part, Bytes codes, const int8_t* x,
                              int64_t x_stride) {
#pragma GCC unroll kCopies
  for (int i = 0; i < M; ++i) Dot::add(sums[i][part], codes, broadcast_codes(x + i * x_stride));
}

// Prefetches the bytes a few blocks ahead. Measured with AVX-512 (Emerald Rapids, two threads), as
// a share of the time to read the weight, without and with it: 4 bits 62 and 79 % for one row of x,
// 39 and 50 % for 8; 8 bits 78 and 83 %, 60 and 75 %.
TRIREME_INLINE void fetch_block(const uint8_t* w, int64_t bytes) {
#if defined(TRIREME_ISA_avx512)
  constexpr int64_t kAhead = 4096;
  for (int64_t line = 0; line < bytes; line += 64) __builtin_prefetch(w + kAhead + line);
#else
  (void)w, (void)bytes;
#endif
}

// out[i, r] for M rows of x and the 16 rows of a group.
template <bool kFour, int M>
void group_products(const uint8_t* w, const int8_t* x, const float* x_scale, const int32_t* x_sum,
                    int64_t blocks, float* out) {
  using Dot = std::conditional_t<kFour, Dot4, Dot8>;
  constexpr int kPieces = static_cast<int>(group_pieces(kFour));
  const int64_t x_stride = blocks * kBlockColumns;
  Floats total[M][kParts] = {};
  for (int64_t b = 0; b < blocks; ++b, w += group_block_bytes(kFour), x += kBlockColumns) {
    fetch_block(w, group_block_bytes(kFour));
    typename Dot::Sum sums[M][kParts] = {};
    for (int i = 0; i < M; ++i)
      for (int part = 0; part < kParts; ++part) sums[i][part] = Dot::start(x_sum[i * blocks + b]);
#pragma GCC unroll kCopies
    for (int v = 0; v < kPieces; ++v)
#pragma GCC unroll kCopies
      for (int part = 0; part < kParts; ++part) {
        const auto piece =
            load_raw<Bytes>(w + kGroupScaleBytes + v * kPieceBytes + part * kVectorBytes);
        if constexpr (kFour) {
          add_piece<Dot, M>(sums, part, lower_half(piece), x + 4 * v, x_stride);
          add_piece<Dot, M>(sums, part, upper_half(piece), x + 4 * v + 16, x_stride);
        } else {
          add_piece<Dot, M>(sums, part, piece, x + 4 * v, x_stride);
        }
      }
#pragma GCC unroll kCopies
    for (int part = 0; part < kParts; ++part) {
      f16 halves[kLanes<float>];
      __builtin_memcpy(static_cast<void*>(halves), w + part * kHalvesBytes, kHalvesBytes);
      const Floats scale = load_half(halves);
#pragma GCC unroll kCopies
      for (int i = 0; i < M; ++i)
        total[i][part] +=
            __builtin_convertvector(Dot::finish(sums[i][part], x_sum[i * blocks + b]), Floats) *
            (scale * x_scale[i * blocks + b]);
    }
  }
  for (int i = 0; i < M; ++i)
    for (int part = 0; part < kParts; ++part)
      store(out + i * kGroupRows + part * kLanes<float>, total[i][part]);
}

template <bool kFour>
TRIREME_INLINE void tile_products(int rows, const uint8_t* w, const int8_t* x, const float* x_scale,
                                  const int32_t* x_sum, int64_t blocks, float* out) {
  switch (rows) {
    case 1: return group_products<kFour, 1>(w, x, x_scale, x_sum, blocks, out);
    case 2: return group_products<kFour, 2>(w, x, x_scale, x_sum, blocks, out);
    case 3: return group_products<kFour, 3>(w, x, x_scale, x_sum, blocks, out);
#if defined(TRIREME_ISA_avx512)
    case 4: return group_products<kFour, 4>(w, x, x_scale, x_sum, blocks, out);
    case 5: return group_products<kFour, 5>(w, x, x_scale, x_sum, blocks, out);
    case 6: return group_products<kFour, 6>(w, x, x_scale, x_sum, blocks, out);
    case 7: return group_products<kFour, 7>(w, x, x_scale, x_sum, blocks, out);
#endif
    default: return group_products<kFour, kTile>(w, x, x_scale, x_sum, blocks, out);
  }
}

// Stores outputs n .. n + count of one row of y.
template <class T>
TRIREME_INLINE void store_row(T* y, const T* bias, const float* values, int64_t count) {
  for (int64_t j = 0; j < count; j += kLanes<float>) {
    const int64_t left = count - j;
    Floats v = load(values + j);
    if (left >= kLanes<float>) {
      if (bias != nullptr) v += load(bias + j);
      store(y + j, v);
    } else {
      if (bias != nullptr) v += load_partial(bias + j, left);
      store_partial(y + j, left, v);
    }
  }
}

template <bool kFour, class T>
void groups_of(const BlockProduct<T>& a, int64_t begin, int64_t end) {
  const int64_t group_bytes = a.blocks * group_block_bytes(kFour);
  for (int64_t g = begin; g < end; ++g) {
    const uint8_t* w = a.w + g * group_bytes;
    const int64_t n = g * kGroupRows, left = a.n - n;
    const int64_t count = left < kGroupRows ? left : kGroupRows;
    for (int64_t i = 0; i < a.m; i += kTile) {
      alignas(64) float out[kTile * kGroupRows];
      const int rows = static_cast<int>(a.m - i < kTile ? a.m - i : kTile);
      tile_products<kFour>(rows, w, a.x + i * a.blocks * kBlockColumns, a.x_scale + i * a.blocks,
                           a.x_sum + i * a.blocks, a.blocks, out);
      for (int r = 0; r < rows; ++r)
        store_row(a.y + (i + r) * a.y_stride + n, a.bias != nullptr ? a.bias + n : nullptr,
                  out + r * kGroupRows, count);
    }
  }
}

}  // namespace

template <class T>
void block_product(const BlockProduct<T>& a, int threads) {
  const int64_t groups = (a.n + kGroupRows - 1) / kGroupRows;
  const int64_t bytes = a.blocks * group_block_bytes(a.four_bits) * a.m + 1;
  parallel_pieces(threads, groups, kGrainBytes / bytes + 1, [&a](int64_t begin, int64_t end) {
    if (a.four_bits)
      groups_of<true>(a, begin, end);
    else
      groups_of<false>(a, begin, end);
  });
}

template void block_product<float>(const BlockProduct<float>&, int);
template void block_product<bf16>(const BlockProduct<bf16>&, int);
template void block_product<f16>(const BlockProduct<f16>&, int);

}  // namespace trireme::cpu::TRIREME_ISA

#if defined(TRIREME_ISA_avx512) && defined(__clang__)
#pragma clang attribute pop
#elif defined(TRIREME_ISA_avx512)
#pragma GCC pop_options
#endif
