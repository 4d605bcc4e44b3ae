#include "engine/core/parallel_for.h"
#include "engine/ops/backend/vector_loop.cpu.h"
#include "engine/ops/compression/block_code.kernels.h"

namespace trireme::cpu::TRIREME_ISA {
namespace {

// Codes pass through bytes on the stack, kChunk at a time.
constexpr int64_t kChunk = 128;
constexpr int64_t kPieceElements = 1 << 14;  // worth a thread

// Integers of one and four bytes, one for each lane of a vector of C.
template <class C>
struct OfLanes {
  typedef int8_t Bytes __attribute__((vector_size(kLanes<C>)));
  typedef int32_t Words __attribute__((vector_size(4 * kLanes<C>)));
};

template <class T>
using Ints = typename Traits<Vec<compute_t<T>>>::Int;

template <class T, class Lanes>
TRIREME_INLINE Vec<compute_t<T>> value_at(const T* x, const compute_t<T>* residual, int64_t i,
                                          Lanes lanes) {
  const auto v = load_lanes(x + i, lanes);
  return residual == nullptr ? v : v + load_lanes(residual + i, lanes);
}

// |v|, of NaN too.
template <class V>
TRIREME_INLINE V magnitude(V v) {
  using Int = typename Traits<V>::Int;
  const Int sign = __builtin_bit_cast(Int, splat<V>(-typename Traits<V>::Scalar(0)));
  return __builtin_bit_cast(V, __builtin_bit_cast(Int, v) & ~sign);
}

// Largest magnitude, compared as integers: NaN and infinity are larger than all others.
template <class T>
TRIREME_INLINE compute_t<T> largest_magnitude(const T* x, const compute_t<T>* residual, int64_t n) {
  using C = compute_t<T>;
  Ints<T> max_bits{};
  for_vectors<C>(n, [&](int64_t i, auto lanes) {
    const auto bits = __builtin_bit_cast(Ints<T>, magnitude(value_at(x, residual, i, lanes)));
    max_bits = bits > max_bits ? bits : max_bits;
  });
  auto best = max_bits[0];
  for (int k = 1; k < kLanes<C>; ++k) best = max_bits[k] > best ? max_bits[k] : best;
  return __builtin_bit_cast(C, best);
}

template <class T>
TRIREME_INLINE compute_t<T> mean_magnitude(const T* x, const compute_t<T>* residual, int64_t n) {
  using C = compute_t<T>;
  constexpr int kVectors = kScaleSums / kLanes<C>;
  Vec<C> sums[kVectors] = {};
  int64_t i = 0;
  for (; i + kScaleSums <= n; i += kScaleSums)
    for (int k = 0; k < kVectors; ++k)
      sums[k] += magnitude(value_at(x, residual, i + k * kLanes<C>, Whole{}));
  for (int k = 0; i < n; i += kLanes<C>, ++k)
    sums[k] += magnitude(value_at(x, residual, i, n - i < kLanes<C> ? n - i : int64_t{kLanes<C>}));
  for (int half = kVectors / 2; half > 0; half /= 2)
    for (int k = 0; k < half; ++k) sums[k] += sums[k + half];
  return sum(sums[0]) / static_cast<C>(n);
}

template <class I>
TRIREME_INLINE void store_bytes(int8_t* p, I v) {
  typedef int8_t Bytes __attribute__((vector_size(sizeof(I) / sizeof(v[0]))));
  const Bytes bytes = __builtin_convertvector(v, Bytes);
  __builtin_memcpy(p, &bytes, sizeof bytes);
}

// The low kBits of n bytes, n a multiple of the elements of a byte.
template <int kBits>
TRIREME_INLINE void pack_codes(uint8_t* codes, const int8_t* bytes, int64_t n) {
  if constexpr (kBits == 8) {
    __builtin_memcpy(codes, bytes, static_cast<size_t>(n));
  } else if constexpr (kBits == 4) {
    for (int64_t i = 0; i < n / 2; ++i)
      codes[i] = static_cast<uint8_t>((bytes[2 * i] & 15) | (bytes[2 * i + 1] << 4));
  } else {
    for (int64_t i = 0; i < n / 8; ++i) {
      uint64_t eight;
      __builtin_memcpy(&eight, bytes + 8 * i, sizeof eight);
      // Moves the lowest bit of byte k to bit 56 + k.
      codes[i] = static_cast<uint8_t>((eight * 0x0102040810204080u) >> 56);
    }
  }
}

// Multiples of the scale: the inverse of pack_codes.
template <int kBits>
TRIREME_INLINE void unpack_codes(int8_t* bytes, const uint8_t* codes, int64_t n) {
  if constexpr (kBits == 8) {
    __builtin_memcpy(bytes, codes, static_cast<size_t>(n));
  } else if constexpr (kBits == 4) {
    for (int64_t i = 0; i < (n + 1) / 2; ++i) {
      bytes[2 * i] = static_cast<int8_t>((codes[i] & 15) - 8);
      bytes[2 * i + 1] = static_cast<int8_t>((codes[i] >> 4) - 8);
    }
  } else {
    constexpr uint64_t kOnes = 0x0101010101010101u;
    for (int64_t i = 0; i < (n + 7) / 8; ++i) {
      // Byte k is nonzero if bit k is set; then 1 if it is, else 0; then 1, else -1.
      const uint64_t bits = (codes[i] * kOnes) & 0x8040201008040201u;
      const uint64_t set = ((bits + 0x7f * kOnes) >> 7) & kOnes;
      const uint64_t signs = ~(set * 0xfe);
      __builtin_memcpy(bytes + 8 * i, &signs, sizeof signs);
    }
  }
}

// Codes of n elements, n <= kChunk, as bytes; residual = v - y.
template <int kBits, class T>
TRIREME_INLINE void encode_chunk(int8_t* bytes, const T* x, compute_t<T>* residual, int64_t n,
                                 compute_t<T> scale, compute_t<T> inverse) {
  using C = compute_t<T>;
  const Vec<C> shift = splat<Vec<C>>(kRoundingShift<C>);
  for_vectors<C>(n, [&](int64_t i, auto lanes) {
    const Vec<C> v = value_at(x, residual, i, lanes);
    Vec<C> y;
    Ints<T> code;
    if constexpr (kBits == 1) {
      const auto positive = v >= C(0);
      y = positive ? splat<Vec<C>>(scale) : splat<Vec<C>>(-scale);
      code = positive & 1;
    } else {
      const Vec<C> shifted = opaque(v * inverse) + shift;
      y = opaque((shifted - shift) * scale);
      code = __builtin_bit_cast(Ints<T>, shifted) - __builtin_bit_cast(Ints<T>, shift);
      if constexpr (kBits == 4) code += 8;
    }
    store_bytes(bytes + i, code);
    if (residual != nullptr) store_lanes(residual + i, lanes, v - y);
  });
}

template <int kBits, class T>
TRIREME_INLINE void encode_block(const BlockEncode<T>& a, const QuantBlockRange& at,
                                 float* stored) {
  using C = compute_t<T>;
  const T* const x = a.x + at.element;
  C* const residual = a.residual == nullptr ? nullptr : a.residual + at.element;
  const C statistic =
      kBits == 1 ? mean_magnitude(x, residual, at.width) : largest_magnitude(x, residual, at.width);
  const float scale = block_scale(statistic, kBits);
  *stored = scale;
  const bool finite = scale - scale == 0;
  const C inverse = scale == 0 || !finite ? C(0) : C(1) / static_cast<C>(scale);
  for (int64_t i = 0; i < at.width; i += kChunk) {
    const int64_t n = at.width - i < kChunk ? at.width - i : kChunk;
    int8_t bytes[kChunk + kLanes<float>] = {};
    if (finite)
      encode_chunk<kBits>(bytes, x + i, residual == nullptr ? nullptr : residual + i, n,
                          static_cast<C>(scale), inverse);
    for (int64_t k = n; k % 8 != 0; ++k) bytes[k] = 0;  // the padded lanes of the last vector
    pack_codes<kBits>(a.codes + at.code + i * kBits / 8, bytes,
                      kBits == 8 ? n : (n * kBits + 7) / 8 * (8 / kBits));
  }
}

template <int kBits, class T>
TRIREME_INLINE void decode_block(const BlockDecode<T>& a, const QuantBlockRange& at, float stored) {
  using C = compute_t<T>;
  using Bytes = typename OfLanes<C>::Bytes;
  using Words = typename OfLanes<C>::Words;
  T* const y = a.y + at.element;
  const auto scale = static_cast<C>(stored);
  for (int64_t i = 0; i < at.width; i += kChunk) {
    const int64_t n = at.width - i < kChunk ? at.width - i : kChunk;
    int8_t bytes[kChunk + kLanes<float>] = {};
    unpack_codes<kBits>(bytes, a.codes + at.code + i * kBits / 8, n);
    for_vectors<C>(n, [&](int64_t k, auto lanes) {
      Bytes narrow;
      __builtin_memcpy(&narrow, bytes + k, sizeof narrow);
      // In two steps, each one instruction.
      const Words wide = __builtin_convertvector(narrow, Words);
      Vec<C> v = opaque(__builtin_convertvector(wide, Vec<C>) * scale);
      if (a.add) v += load_lanes(y + i + k, lanes);
      store_lanes(y + i + k, lanes, v);
    });
  }
}

// body.operator()<kBits>(place, block number) for all blocks.
template <class Body>
TRIREME_INLINE void for_blocks(const BlockShape& s, int threads, Body&& body) {
  const auto run = [&]<int kBits>() {
    parallel_pieces(
        threads, s.rows * s.blocks, kPieceElements / s.block + 1, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i)
            body.template operator()<kBits>(quant_block_range(s, i / s.blocks, i % s.blocks), i);
        });
  };
  if (s.bits == 8) return run.template operator()<8>();
  if (s.bits == 4) return run.template operator()<4>();
  run.template operator()<1>();
}

}  // namespace

template <class T>
void encode_blocks(const BlockEncode<T>& a, int threads) {
  for_blocks(a.shape, threads, [&]<int kBits>(const QuantBlockRange& at, int64_t i) {
    encode_block<kBits>(a, at, a.scale + i);
  });
}

template <class T>
void decode_blocks(const BlockDecode<T>& a, int threads) {
  for_blocks(a.shape, threads, [&]<int kBits>(const QuantBlockRange& at, int64_t i) {
    decode_block<kBits>(a, at, a.scale[i]);
  });
}

#define TRIREME_INSTANTIATE(T)                                \
  template void encode_blocks<T>(const BlockEncode<T>&, int); \
  template void decode_blocks<T>(const BlockDecode<T>&, int);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cpu::TRIREME_ISA
