// Parts shared by the attention kernels on tensor cores: tiles of 16-bit elements in shared memory,
// their products, and the rows and columns of a lane's registers. For CUDA sources only.
//
// Four warps work on a tile of 64 rows, 16 each. The scores of a warp's rows with the columns of a
// tile are in its registers as the `d` fragments of engine/device/mma.h; rounded to 16 bits, two
// neighbouring ones are the `a` fragment of the next product, so that scores never leave the
// registers.
#pragma once

#include "engine/device/mma.h"
#include "engine/ops/attention/attention.kernels.h"
#include "engine/ops/attention/attention_tile.cuda.h"

namespace trireme::cuda {

inline constexpr int kMmaThreads = 128;
inline constexpr int kMmaRows = 64;

// Row stride, in elements, of tiles of D columns in shared memory: padded by 16 bytes, so that
// eight rows are in different banks.
template <int D>
inline constexpr int kMmaStride = D + 8;

template <class T>
inline constexpr bool kHasMma = sizeof(T) == 2;

// True if every row of every head starts at a multiple of 8 elements, has a multiple of 8 elements,
// and the data is 16-byte aligned.
template <class T>
bool mma_rows(const cpu::HeadView<T>& view, int64_t width) {
  return reinterpret_cast<uintptr_t>(view.data) % 16 == 0 && view.row % 8 == 0 &&
         view.head % 8 == 0 && width % 8 == 0;
}

// Starts copying rows `first` .. `first + rows` of a head, at most kRows, to shared memory
// asynchronously (commit_copies(), wait_copies()); the rest of the tile becomes zero. All
// kMmaThreads threads must call it.
template <int D, int kRows, class T>
__device__ void start_tile(T* tile, const cpu::HeadView<const T>& view, int64_t head, int64_t first,
                           int64_t rows, int64_t width) {
  constexpr int kChunks = D / 8;
  static_assert(kRows * kChunks % kMmaThreads == 0);
#pragma unroll
  for (int at = 0; at < kRows * kChunks; at += kMmaThreads) {
    const int chunk = at + static_cast<int>(threadIdx.x);
    const int row = chunk / kChunks, column = chunk % kChunks * 8;
    const bool valid = row < rows && column < width;
    // An address that is not read must still be valid.
    const T* from = view.data + (valid ? (first + row) * view.row + head * view.head + column : 0);
    copy_async_16(tile + row * kMmaStride<D> + column, from, valid);
  }
}

// Sums or scores of a warp: 16 rows by 8 kTiles columns (lane_row(), lane_column()).
template <int kTiles>
struct WarpTile {
  float d[kTiles][4];
  __device__ void clear() {
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) d[n][i] = 0;
  }
};

// Offset of the lane's row for load_matrices(), in elements. a_offset(): for an `a` fragment, and
// for the `b` fragments of two neighbouring column tiles if the product sums over the stored rows.
// b_offset(): for those `b` fragments if the stored rows are the product's columns.
template <int D>
__device__ int a_offset() {
  const int lane = lane_of_warp();
  return lane % 16 * kMmaStride<D> + lane / 16 * 8;
}
template <int D>
__device__ int b_offset() {
  const int lane = lane_of_warp();
  return (lane % 8 + lane / 16 * 8) * kMmaStride<D> + lane / 8 % 2 * 8;
}

// The `a` fragments of a warp's 16 rows.
template <int D, class T>
__device__ void load_rows(uint32_t (&a)[D / 16][4], const T* rows) {
#pragma unroll
  for (int k = 0; k < D / 16; ++k) load_matrices<false>(a[k], rows + a_offset<D>() + 16 * k);
}

// s = rows columns^T: `columns` is a tile of 8 kTiles rows of D elements.
template <int D, int kTiles, class T>
__device__ void row_products(WarpTile<kTiles>& s, const uint32_t (&rows)[D / 16][4],
                             const T* columns) {
  s.clear();
#pragma unroll
  for (int k = 0; k < D / 16; ++k)
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) {
      uint32_t b[4];
      load_matrices<false>(b, columns + 8 * n * kMmaStride<D> + b_offset<D>() + 16 * k);
      mma_m16n8k16<T>(s.d[n], rows[k], {b[0], b[1]});
      mma_m16n8k16<T>(s.d[n + 1], rows[k], {b[2], b[3]});
    }
}
// The same with the rows in shared memory too, to save registers.
template <int D, int kTiles, class T>
__device__ void row_products(WarpTile<kTiles>& s, const T* rows, const T* columns) {
  s.clear();
#pragma unroll
  for (int k = 0; k < D / 16; ++k) {
    uint32_t a[4];
    load_matrices<false>(a, rows + a_offset<D>() + 16 * k);
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) {
      uint32_t b[4];
      load_matrices<false>(b, columns + 8 * n * kMmaStride<D> + b_offset<D>() + 16 * k);
      mma_m16n8k16<T>(s.d[n], a, {b[0], b[1]});
      mma_m16n8k16<T>(s.d[n + 1], a, {b[2], b[3]});
    }
  }
}

// sums += weights values, the weights rounded to T: `values` is a tile of 8 kTiles rows of D
// elements.
template <int D, int kTiles, class T>
__device__ void add_weighted(WarpTile<D / 8>& sums, const WarpTile<kTiles>& weights,
                             const T* values) {
#pragma unroll
  for (int k = 0; k < kTiles / 2; ++k) {
    const float(&low)[4] = weights.d[2 * k];
    const float(&high)[4] = weights.d[2 * k + 1];
    const uint32_t a[4] = {pack_two<T>(low[0], low[1]), pack_two<T>(low[2], low[3]),
                           pack_two<T>(high[0], high[1]), pack_two<T>(high[2], high[3])};
#pragma unroll
    for (int n = 0; n < D / 8; n += 2) {
      uint32_t b[4];
      load_matrices<true>(b, values + 16 * k * kMmaStride<D> + a_offset<D>() + 8 * n);
      mma_m16n8k16<T>(sums.d[n], a, {b[0], b[1]});
      mma_m16n8k16<T>(sums.d[n + 1], a, {b[2], b[3]});
    }
  }
}

// A lane's register d[n][2 r + e] is row lane / 4 + 8 r of the warp, column 8 n + lane % 4 * 2 + e.
__device__ inline int lane_row() { return lane_of_warp() / 4; }
__device__ inline int lane_column() { return static_cast<int>(threadIdx.x) % 4 * 2; }

// Sum and maximum over the four lanes of a row, in each of them. All lanes must call them.
__device__ inline float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}
__device__ inline float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

// Scales scores and applies the soft cap (both for base-2 scores); those of keys that a row does
// not see become -inf. seen: for the lane's two rows.
template <int kTiles>
__device__ void scale_and_hide(WarpTile<kTiles>& s, float scale, float cap,
                               const SeenColumns (&seen)[2]) {
#pragma unroll
  for (int r = 0; r < 2; ++r)
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int column = 8 * n + lane_column() + e;
        const bool visible = column >= seen[r].low && column < seen[r].high;
        s.d[n][2 * r + e] = visible ? capped(s.d[n][2 * r + e] * scale, cap) : -kInfinity;
      }
}

// softmax_tile() of attention_tile.cuda.h for the lane's two rows.
template <int D, int kTiles>
__device__ void softmax(OnlineSoftmax<float, 2>& w, WarpTile<kTiles>& s, WarpTile<D / 8>& sums) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float now = w.maximum[r];
#pragma unroll
    for (int n = 0; n < kTiles; ++n) now = fmaxf(now, fmaxf(s.d[n][2 * r], s.d[n][2 * r + 1]));
    now = quad_max(now);
    const float base = now == -kInfinity ? 0.0f : now;
    const float rescale = exp2f(w.maximum[r] - base);
    float sum = 0;
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float p = exp2f(s.d[n][2 * r + e] - base);
        s.d[n][2 * r + e] = p;
        sum += p;
      }
    w.maximum[r] = now;
    w.total[r] = w.total[r] * rescale + sum;
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) sums.d[n][2 * r + e] *= rescale;
  }
}

// Stores (kAdd: adds) factor * the lane's part of its row r, 0 or 1, of the sums. `to` is the start
// of that row in memory, of `width` elements.
template <bool kAdd, int D, class T>
__device__ void store_sums(T* to, const WarpTile<D / 8>& sums, int r, float factor, int64_t width) {
#pragma unroll
  for (int n = 0; n < D / 8; ++n) {
    const int column = 8 * n + lane_column();
    if (column >= width) continue;
    auto* const pair = reinterpret_cast<Pack<T, 2>*>(to + column);
    Pack<T, 2> value = kAdd ? *pair : Pack<T, 2>{};
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const float x = (r == 0 ? sums.d[n][e] : sums.d[n][2 + e]) * factor;
      value.v[e] = static_cast<T>(kAdd ? to_compute(value.v[e]) + x : x);
    }
    *pair = value;
  }
}

}  // namespace trireme::cuda
