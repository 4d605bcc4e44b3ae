#include "engine/core/parallel_for.h"
#include "engine/ops/quantized/float8.kernels.h"

namespace trireme::cpu::TRIREME_ISA {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements worth a thread
constexpr int64_t kBlock = 128;

template <class T>
uint32_t largest_magnitude(const T* x, int64_t n) {
  uint32_t largest = 0;
#pragma omp simd reduction(max : largest)
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = magnitude_bits(x[i]);
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

template <class F, class T>
void encode_as(uint8_t* codes, const T* x, float scale, int64_t n) {
  for (int64_t i = 0; i < n; ++i) codes[i] = F(convert_float<float>(x[i]) * scale).bits;
}

template <class T>
void encode(Float8Format format, uint8_t* codes, const T* x, float scale, int64_t n) {
  if (format == Float8Format::kE4M3) return encode_as<fp8_e4m3>(codes, x, scale, n);
  return encode_as<fp8_e5m2>(codes, x, scale, n);
}

template <class F, class T>
void decode_as(T* y, const uint8_t* codes, float inverse, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    F value;
    value.bits = codes[i];
    y[i] = convert_float<T>(static_cast<float>(value) * inverse);
  }
}

template <class T>
void decode(Float8Format format, T* y, const uint8_t* codes, float inverse, int64_t n) {
  if (format == Float8Format::kE4M3) return decode_as<fp8_e4m3>(y, codes, inverse, n);
  return decode_as<fp8_e5m2>(y, codes, inverse, n);
}

// Zeroes the padding of a row of `inverse`, of which `across` elements are scales of blocks.
void clear_rest(float* row, int64_t across, int64_t length) {
  for (int64_t i = across; i < length; ++i) row[i] = 0;
}

template <class T>
void quantize_group(const QuantizeFloat8<T>& a, int64_t first_row, int64_t first_column) {
  const int64_t end_row = first_row + a.group_rows < a.rows ? first_row + a.group_rows : a.rows;
  const int64_t width = a.columns - first_column < kBlock ? a.columns - first_column : kBlock;
  uint32_t largest = 0;
  for (int64_t r = first_row; r < end_row; ++r) {
    const uint32_t bits = largest_magnitude(a.x + r * a.columns + first_column, width);
    largest = bits > largest ? bits : largest;
  }
  const float scale = float8_scale(float8_max(a.format), std::bit_cast<float>(largest), 1.0f, 1.0f);
  for (int64_t r = first_row; r < end_row; ++r) {
    const int64_t at = r * a.columns + first_column;
    encode(a.format, a.codes + at, a.x + at, scale, width);
  }
  a.inverse[float8_group(a.group_rows, a.rows, a.columns, first_row, first_column)] = 1.0f / scale;
}

// Scales of the columns of a tile of x, which are rows of the transpose: one each, or one for all.
template <class T>
void tile_scales(const QuantizeFloat8<T>& a, int64_t first_row, int64_t end_row,
                 int64_t first_column, int64_t width, float* scales) {
  uint32_t largest[kBlock] = {};
  for (int64_t r = first_row; r < end_row; ++r)
    for (int64_t i = 0; i < width; ++i) {
      const uint32_t bits = magnitude_bits(a.x[r * a.columns + first_column + i]);
      largest[i] = bits > largest[i] ? bits : largest[i];
    }
  if (a.group_rows != 1) {
    for (int64_t i = 1; i < width; ++i)
      largest[0] = largest[i] > largest[0] ? largest[i] : largest[0];
    for (int64_t i = 1; i < width; ++i) largest[i] = largest[0];
  }
  for (int64_t i = 0; i < width; ++i)
    scales[i] = float8_scale(float8_max(a.format), std::bit_cast<float>(largest[i]), 1.0f, 1.0f);
}

template <class T>
void transpose_tile(const QuantizeFloat8<T>& a, int64_t first_row, int64_t first_column) {
  const int64_t end_row = a.rows - first_row < kBlock ? a.rows : first_row + kBlock;
  const int64_t width = a.columns - first_column < kBlock ? a.columns - first_column : kBlock;
  float scales[kBlock];
  if (a.group_rows == 0)
    for (float& scale : scales) scale = *a.scale;
  else
    tile_scales(a, first_row, end_row, first_column, width, scales);
  uint8_t codes[kBlock];
  for (int64_t i = 0; i < width; ++i) {
    T column[kBlock];
    for (int64_t r = first_row; r < end_row; ++r)
      column[r - first_row] = a.x[r * a.columns + first_column + i];
    encode(a.format, codes, column, scales[i], end_row - first_row);
    for (int64_t r = first_row; r < end_row; ++r)
      a.codes[(first_column + i) * a.rows + r] = codes[r - first_row];
    if (a.group_rows == 1 || (a.group_rows != 0 && i == 0))
      a.inverse[float8_group(a.group_rows, a.columns, a.rows, first_column + i, first_row)] =
          1.0f / scales[i];
  }
}

}  // namespace

template <class T>
void amax(float* out, const T* x, int64_t n, bool accumulate, int threads) {
  uint32_t largest = accumulate ? std::bit_cast<uint32_t>(*out) : 0;
  parallel_for(threads, n, kGrain, [x, &largest](int64_t begin, int64_t end) {
    const uint32_t mine = largest_magnitude(x + begin, end - begin);
    uint32_t before = __atomic_load_n(&largest, __ATOMIC_RELAXED);
    while (mine > before && !__atomic_compare_exchange_n(&largest, &before, mine, true,
                                                         __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
  });
  *out = std::bit_cast<float>(largest);
}

template <class T>
void quantize_float8(const QuantizeFloat8<T>& a, int threads) {
  if (a.group_rows == 0) {
    const float scale = *a.scale;
    *a.inverse = 1.0f / scale;
    return parallel_for(threads, a.rows * a.columns, kGrain,
                        [&a, scale](int64_t begin, int64_t end) {
                          encode(a.format, a.codes + begin, a.x + begin, scale, end - begin);
                        });
  }
  const int64_t down = (a.rows + a.group_rows - 1) / a.group_rows;
  parallel_for(threads, down, 1, [&a](int64_t begin, int64_t end) {
    for (int64_t g = begin; g < end; ++g)
      for (int64_t c = 0; c < a.columns; c += kBlock) quantize_group(a, g * a.group_rows, c);
  });
  if (a.group_rows != kBlock) return;
  const int64_t length = float8_blocks_in_row(a.columns);
  for (int64_t g = 0; g < down; ++g)
    clear_rest(a.inverse + g * length, (a.columns + kBlock - 1) / kBlock, length);
}

template <class T>
void quantize_float8_transposed(const QuantizeFloat8<T>& a, int threads) {
  if (a.group_rows == 0) *a.inverse = 1.0f / *a.scale;
  const int64_t down = (a.columns + kBlock - 1) / kBlock;
  parallel_for(threads, down, 1, [&a](int64_t begin, int64_t end) {
    for (int64_t g = begin; g < end; ++g)
      for (int64_t r = 0; r < a.rows; r += kBlock) transpose_tile(a, r, g * kBlock);
  });
  if (a.group_rows != kBlock) return;
  const int64_t length = float8_blocks_in_row(a.rows);
  for (int64_t g = 0; g < down; ++g)
    clear_rest(a.inverse + g * length, (a.rows + kBlock - 1) / kBlock, length);
}

template <class T>
void dequantize_float8(const DequantizeFloat8<T>& a, int threads) {
  const int64_t width = a.group_rows == 0 ? a.columns : kBlock;
  const int64_t grain = kGrain / (a.columns + 1) + 1;
  parallel_for(threads, a.rows, grain, [&a, width](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      for (int64_t c = 0; c < a.columns; c += width) {
        const int64_t at = r * a.columns + c;
        const float inverse = a.inverse[float8_group(a.group_rows, a.rows, a.columns, r, c)];
        decode(a.format, a.y + at, a.codes + at, inverse,
               a.columns - c < width ? a.columns - c : width);
      }
  });
}

#define TRIREME_INSTANTIATE(T)                                                \
  template void amax<T>(float*, const T*, int64_t, bool, int);                \
  template void quantize_float8<T>(const QuantizeFloat8<T>&, int);            \
  template void quantize_float8_transposed<T>(const QuantizeFloat8<T>&, int); \
  template void dequantize_float8<T>(const DequantizeFloat8<T>&, int);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cpu::TRIREME_ISA
