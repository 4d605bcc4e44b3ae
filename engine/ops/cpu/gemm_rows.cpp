#include "engine/ops/cpu/gemm_rows.h"

#include "engine/core/parallel_for.h"
#include "engine/ops/cpu/vector_loop.h"

namespace trireme::cpu::TRIREME_ISA {
namespace {

constexpr int64_t kGrainBytes = 1 << 15;  // of weight: less is not worth a thread
constexpr int64_t kCachedBytes = 1
                                 << 17;  // of weight, which all rows of x meet before the next come
constexpr int64_t kLane = kLanes<float>;
// Sums of a tile and their operands fit into 16 registers.
constexpr int kTileRows = 3, kTileColumns = 2, kUnroll = 2;

TRIREME_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// The product with x as it is read here.
template <class T>
struct Rows : Gemv<T> {
  const float* x32 = nullptr;
  int64_t x32_stride = 0;
};

template <int M, int N, class T>
TRIREME_INLINE void add_products(const Rows<T>& a, const float* x, const T* w, auto lanes,
                                 Vec<float> (&sums)[M][N]) {
  Vec<float> rows[M];
  for (int i = 0; i < M; ++i) rows[i] = load_lanes(x + i * a.x32_stride, lanes);
  for (int j = 0; j < N; ++j) {
    const Vec<float> weights = load_lanes(w + j * a.w_stride, lanes);
    for (int i = 0; i < M; ++i) sums[i][j] += weights * rows[i];
  }
}

// out[i][j] = dot of row i of x and row j of w.
template <int M, int N, class T>
void dot_tile(const Rows<T>& a, const float* x, const T* w, float (&out)[kTileRows][kTileColumns]) {
  Vec<float> sums[kUnroll][M][N] = {};
  int64_t k = 0;
  for (; k + kUnroll * kLane <= a.k; k += kUnroll * kLane)
    for (int u = 0; u < kUnroll; ++u)
      add_products<M, N>(a, x + k + u * kLane, w + k + u * kLane, Whole{}, sums[u]);
  for (; k + kLane <= a.k; k += kLane) add_products<M, N>(a, x + k, w + k, Whole{}, sums[0]);
  if (k < a.k) add_products<M, N>(a, x + k, w + k, a.k - k, sums[0]);
  for (int i = 0; i < M; ++i)
    for (int j = 0; j < N; ++j) out[i][j] = sum(sums[0][i][j] + sums[1][i][j]);
}

// Not inlined: where each kind of tile had this arithmetic for itself, the compiler might fuse a product and a sum in
// one of them and not in another.
template <class Out>
[[gnu::noinline]] void finish_tile(const auto& a, int64_t row, int64_t rows, int64_t column,
                                   int64_t columns, const float (&dots)[kTileRows][kTileColumns]) {
  const auto* bias = static_cast<const Out*>(a.bias);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      Out* y = static_cast<Out*>(a.y) + (row + i) * a.y_stride + column + j;
      float value = a.alpha * dots[i][j];
      if (bias != nullptr) value += load_partial(bias + column + j, 1)[0];
      if (a.accumulate) value += load_partial(y, 1)[0];
      store_partial(y, 1, splat<Vec<float>>(value));
    }
}

template <int M, class T, class Out>
void tiles_of_rows(const Rows<T>& a, int64_t row, int64_t begin, int64_t end) {
  const float* x = a.x32 + row * a.x32_stride;
  float dots[kTileRows][kTileColumns];
  int64_t j = begin;
  // With one row the weight is all that is read: one stream of it is fastest (gemv.h).
  for (; M > 1 && j + kTileColumns <= end; j += kTileColumns) {
    dot_tile<M, kTileColumns>(a, x, a.w + j * a.w_stride, dots);
    finish_tile<Out>(a, row, M, j, kTileColumns, dots);
  }
  for (; j < end; ++j) {
    dot_tile<M, 1>(a, x, a.w + j * a.w_stride, dots);
    finish_tile<Out>(a, row, M, j, 1, dots);
  }
}

template <class T, class Out>
void rows_into(const Rows<T>& a, int64_t begin, int64_t end) {
  int64_t row = 0;
  for (; row + kTileRows <= a.m; row += kTileRows)
    tiles_of_rows<kTileRows, T, Out>(a, row, begin, end);
  if (a.m - row == 2) tiles_of_rows<2, T, Out>(a, row, begin, end);
  if (a.m - row == 1) tiles_of_rows<1, T, Out>(a, row, begin, end);
}

}  // namespace

template <class T>
void gemm_rows(const Gemv<T>& product, const float* x, int64_t x_stride, int threads) {
  const Rows<T> a{product, x, x_stride};
  const int64_t row_bytes = a.k * static_cast<int64_t>(sizeof(T)) + 1;
  const int64_t block = kCachedBytes / row_bytes + kTileColumns;
  parallel_for(threads, a.n, kGrainBytes / row_bytes + 1, [&](int64_t begin, int64_t end) {
    for (; begin < end; begin += block) {
      const int64_t until = smaller(begin + block, end);
      if (a.y_float32)
        rows_into<T, float>(a, begin, until);
      else
        rows_into<T, T>(a, begin, until);
    }
  });
}

template void gemm_rows<float>(const Gemv<float>&, const float*, int64_t, int);
template void gemm_rows<bf16>(const Gemv<bf16>&, const float*, int64_t, int);

}  // namespace trireme::cpu::TRIREME_ISA
