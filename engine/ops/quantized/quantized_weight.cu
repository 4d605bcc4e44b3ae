#include <limits>

#include "engine/core/convert_float.h"
#include "engine/ops/backend/elements.cuda.h"
#include "engine/ops/quantized/block_bytes.cuda.h"
#include "engine/ops/quantized/quantized_weight.kernels.h"

namespace trireme::cuda {
namespace {

// --- decoding ---

// Stores the four numbers of a word to to[c] .. to[c + 3], as far as the row has these columns.
// kWide: packs of 4 may be stored.
template <bool kWide, class T>
__device__ void store_four(T* to, int64_t c, int64_t columns, const float (&values)[4]) {
  if (kWide && c + 4 <= columns) {
    Pack<T, 4> pack;
#pragma unroll
    for (int i = 0; i < 4; ++i) pack.v[i] = convert_float<T>(values[i]);
    *reinterpret_cast<Pack<T, 4>*>(to + c) = pack;
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
    if (c + i < columns) to[c + i] = convert_float<T>(values[i]);
}

// Decodes the columns from `block` on that word v of a row contains; to: the row.
template <bool kFour, bool kWide, class T>
__device__ void decode_word(T* to, int64_t columns, const uint8_t* from, int64_t block, int row,
                            int v) {
  const uint32_t word = word_of(from, row, v);
  const float scale = scale_of(from, row);
  float low[4], high[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t byte = word >> (8 * i) & 0xffu;
    if constexpr (kFour) {
      low[i] = scale * static_cast<float>(static_cast<int>(byte & 15u) - 8);
      high[i] = scale * static_cast<float>(static_cast<int>(byte >> 4) - 8);
    } else {
      low[i] = scale * static_cast<float>(static_cast<int8_t>(byte));
    }
  }
  const int64_t c = block * kBlock + 4 * v;
  store_four<kWide>(to, c, columns, low);
  if constexpr (kFour) store_four<kWide>(to, c + kBlock / 2, columns, high);
}

constexpr int kDecodeThreads = 256, kDecodeWarps = kDecodeThreads / kWarp;

// One warp per block of a group: neighbouring lanes have neighbouring words of a row, and so
// neighbouring numbers.
template <class T, bool kFour, bool kWide>
__global__ void __launch_bounds__(kDecodeThreads) decode_blocks_kernel(DecodeBlocks<T> a) {
  begin_kernel();
  constexpr int kPieces = static_cast<int>(cpu::group_pieces(kFour));
  constexpr int kRowsAtOnce = kWarp / kPieces;
  const int lane = lane_of_warp();
  const int64_t number =
      static_cast<int64_t>(blockIdx.x) * kDecodeWarps + static_cast<int>(threadIdx.x) / kWarp;
  const int64_t group = quotient(number, a.blocks), block = number - group * a.blocks;
  if (group * kGroup >= a.rows) return;
  const uint8_t* const from = group_block(a.w, kFour, a.blocks, group, block);
#pragma unroll
  for (int first = 0; first < kGroup; first += kRowsAtOnce) {
    const int row = first + lane / kPieces;
    const int64_t r = group * kGroup + row;
    if (r < a.rows)
      decode_word<kFour, kWide>(a.out + r * a.columns, a.columns, from, block, row, lane % kPieces);
  }
}

// One thread per word of a token's row.
template <class T, bool kFour, bool kWide>
__global__ void __launch_bounds__(kDecodeThreads)
    embedding_blocks_kernel(cpu::EmbeddingForward<T> a, const uint8_t* table, int64_t blocks) {
  begin_kernel();
  constexpr int kPieces = static_cast<int>(cpu::group_pieces(kFour));
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kDecodeThreads + threadIdx.x;
  const int64_t words = blocks * kPieces, t = quotient(i, words);
  if (t >= a.rows) return;
  const int64_t word = i - t * words, block = word / kPieces;
  const int v = static_cast<int>(word % kPieces);
  const int64_t id = a.ids[t], entry = id - a.first_entry;
  T* const to = a.y + t * a.columns;
  if (entry >= 0 && entry < a.entries)
    return decode_word<kFour, kWide>(to, a.columns,
                                     group_block(table, kFour, blocks, entry / kGroup, block),
                                     block, static_cast<int>(entry % kGroup), v);
  const bool known = id >= 0 && id < a.vocabulary;  // else of another shard
  const float value = known ? 0.0f : std::numeric_limits<float>::quiet_NaN();
  const float four[4] = {value, value, value, value};
  const int64_t c = block * kBlock + 4 * v;
  store_four<kWide>(to, c, a.columns, four);
  if constexpr (kFour) store_four<kWide>(to, c + kBlock / 2, a.columns, four);
}

// Calls f.operator()<kFour, kWide>().
template <class T, class F>
void with_format(bool four_bits, const T* out, int64_t columns, F&& f) {
  const bool wide = reinterpret_cast<uintptr_t>(out) % sizeof(Pack<T, 4>) == 0 && columns % 4 == 0;
  if (four_bits)
    wide ? f.template operator()<true, true>() : f.template operator()<true, false>();
  else
    wide ? f.template operator()<false, true>() : f.template operator()<false, false>();
}

// --- rows of a product's left side ---

constexpr int kQuantizeThreads = 256, kQuantizeWarps = kQuantizeThreads / kWarp;
static_assert(kBlock == kWarp);

// One warp per block of a row, one lane per number.
template <class T>
__global__ void __launch_bounds__(kQuantizeThreads) quantize_rows_kernel(cpu::QuantizeRows<T> a) {
  begin_kernel();
  constexpr float kNoFraction = 0x1.8p23f;
  const int lane = lane_of_warp();
  const int64_t at =
      static_cast<int64_t>(blockIdx.x) * kQuantizeWarps + static_cast<int>(threadIdx.x) / kWarp;
  const int64_t row = quotient(at, a.blocks), column = (at - row * a.blocks) * kBlock + lane;
  if (row >= a.rows) return;
  const float x = column < a.columns ? static_cast<float>(a.x[row * a.x_stride + column]) : 0.0f;
  const bool finite = __all_sync(0xffffffffu, x - x == 0.0f ? 1 : 0) != 0;
  const float most = warp_max(fabsf(x));
  const bool zeros = !(most > 1e-30f);  // the inverse might overflow
  const float shifted = __fadd_rn(__fmul_rn(x, zeros ? 0.0f : 127.0f / most), kNoFraction);
  const int code = finite ? __float_as_int(shifted) - __float_as_int(kNoFraction) : 0;
  a.codes[at * kBlock + lane] = static_cast<int8_t>(code);
  const int sum = __reduce_add_sync(0xffffffffu, code);
  if (lane != 0) return;
  a.sum[at] = sum;
  a.scale[at] = !finite ? std::numeric_limits<float>::quiet_NaN() : zeros ? 0.0f : most / 127.0f;
}

}  // namespace

template <class T>
void decode_blocks(Context& gpu, const DecodeBlocks<T>& a) {
  with_format(a.four_bits, a.out, a.columns, [&]<bool kFour, bool kWide>() {
    const int64_t warps = blocks_for(a.rows, kGroup) * a.blocks;
    launch(gpu, "decode_blocks", decode_blocks_kernel<T, kFour, kWide>,
           {.blocks = {blocks_for(warps, kDecodeWarps)}, .threads = kDecodeThreads}, a);
  });
}

template <class T>
void embedding_blocks(Context& gpu, const cpu::EmbeddingForward<T>& a, const uint8_t* table,
                      bool four_bits) {
  const int64_t blocks = blocks_for(a.columns, kBlock);
  with_format(four_bits, a.y, a.columns, [&]<bool kFour, bool kWide>() {
    const int64_t words = a.rows * blocks * cpu::group_pieces(kFour);
    launch(gpu, "embedding_forward_blocks", embedding_blocks_kernel<T, kFour, kWide>,
           {.blocks = {blocks_for(words, kDecodeThreads)}, .threads = kDecodeThreads}, a, table,
           blocks);
  });
}

template <class T>
void quantize_rows(Context& gpu, const cpu::QuantizeRows<T>& a) {
  launch(gpu, "quantize_rows", quantize_rows_kernel<T>,
         {.blocks = {blocks_for(a.rows * a.blocks, kQuantizeWarps)}, .threads = kQuantizeThreads},
         a);
}

#define TRIREME_INSTANTIATE(T)                                                                 \
  template void decode_blocks<T>(Context&, const DecodeBlocks<T>&);                            \
  template void embedding_blocks<T>(Context&, const cpu::EmbeddingForward<T>&, const uint8_t*, \
                                    bool);                                                     \
  template void quantize_rows<T>(Context&, const cpu::QuantizeRows<T>&);
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cuda
