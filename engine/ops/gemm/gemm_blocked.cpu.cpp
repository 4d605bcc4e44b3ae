#include "engine/ops/gemm/gemm_blocked.cpu.h"

#include <omp.h>

#include "engine/ops/backend/simd.cpu.h"

namespace trireme::cpu::TRIREME_ISA {
namespace {

// A tile of C is kTileM rows by kTileVectors vectors, in registers.
constexpr int kTileM = kVectorBytes == 64 ? 8 : 4;
constexpr int kTileVectors = 3;
template <class T>
constexpr int kTileN = kTileVectors* kLanes<T>;

TRIREME_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// Rows [0, rows) of A's block as panels of kTileM rows, k-major, padded with zeros.
template <class T>
void pack_a(const BlockedGemm<T>& g, int64_t row, int64_t rows, int64_t k0, int64_t depth, T* to) {
  for (int64_t i = 0; i < rows; i += kTileM)
    for (int64_t p = 0; p < depth; ++p)
      for (int64_t r = 0; r < kTileM; ++r)
        *to++ = i + r < rows ? g.a[(row + i + r) * g.a_row + (k0 + p) * g.a_column] : T(0);
}

// One panel of kTileN columns of B starting at `column`, k-major, padded with zeros.
template <class T>
void pack_b(const BlockedGemm<T>& g, int64_t column, int64_t k0, int64_t depth, T* to) {
  const int64_t columns = smaller(kTileN<T>, g.n - column);
  const T* from = g.b + k0 * g.b_row + column * g.b_column;
  for (int64_t p = 0; p < depth; ++p, from += g.b_row)
    for (int64_t j = 0; j < kTileN<T>; ++j) *to++ = j < columns ? from[j * g.b_column] : T(0);
}

template <class T>
TRIREME_INLINE void multiply_panels(const T* a, const T* b, int64_t depth,
                                    T (&out)[kTileM][kTileN<T>]) {
  Vec<T> sums[kTileM][kTileVectors] = {};
  for (int64_t p = 0; p < depth; ++p, a += kTileM, b += kTileN<T>) {
    Vec<T> row[kTileVectors];
    for (int j = 0; j < kTileVectors; ++j) row[j] = load(b + j * kLanes<T>);
    for (int i = 0; i < kTileM; ++i)
      for (int j = 0; j < kTileVectors; ++j)
        sums[i][j] = multiply_add(splat<Vec<T>>(a[i]), row[j], sums[i][j]);
  }
  for (int i = 0; i < kTileM; ++i)
    for (int j = 0; j < kTileVectors; ++j) store(&out[i][j * kLanes<T>], sums[i][j]);
}

// Adds a finished tile to C; `first` is the first block of the sum over k.
template <class T>
TRIREME_INLINE void store_tile(const BlockedGemm<T>& g, int64_t row, int64_t column, bool first,
                               const T (&tile)[kTileM][kTileN<T>]) {
  const int64_t rows = smaller(kTileM, g.m - row), columns = smaller(kTileN<T>, g.n - column);
  for (int64_t i = 0; i < rows; ++i) {
    T* c = g.c + (row + i) * g.c_row + column;
    if (!first || g.accumulate)
      for (int64_t j = 0; j < columns; ++j) c[j] += g.alpha * tile[i][j];
    else if (g.bias != nullptr)
      for (int64_t j = 0; j < columns; ++j) c[j] = g.bias[column + j] + g.alpha * tile[i][j];
    else
      for (int64_t j = 0; j < columns; ++j) c[j] = g.alpha * tile[i][j];
  }
}

// One block of rows of C times the packed block of B.
template <class T>
void multiply_block(const BlockedGemm<T>& g, int64_t row, int64_t rows, int64_t column,
                    int64_t columns, int64_t depth, bool first, const T* a, const T* b) {
  for (int64_t j = 0; j < columns; j += kTileN<T>)
    for (int64_t i = 0; i < rows; i += kTileM) {
      alignas(64) T tile[kTileM][kTileN<T>];
      multiply_panels<T>(a + i * depth, b + j * depth, depth, tile);
      store_tile<T>(g, row + i, column + j, first, tile);
    }
}

}  // namespace

template <class T>
void gemm_blocked(const BlockedGemm<T>& g, int threads) {
#pragma omp parallel num_threads(threads)
  {
    T* const packed_b = g.scratch;
    T* const packed_a = g.scratch + kBlockN * kBlockK + omp_get_thread_num() * kBlockM * kBlockK;
    for (int64_t column = 0; column < g.n; column += kBlockN)
      for (int64_t k0 = 0; k0 < g.k; k0 += kBlockK) {
        const int64_t columns = smaller(kBlockN, g.n - column), depth = smaller(kBlockK, g.k - k0);
#pragma omp for schedule(static)
        for (int64_t j = 0; j < columns; j += kTileN<T>)
          pack_b<T>(g, column + j, k0, depth, packed_b + j * depth);
#pragma omp for schedule(static)
        for (int64_t row = 0; row < g.m; row += kBlockM) {
          const int64_t rows = smaller(kBlockM, g.m - row);
          pack_a<T>(g, row, rows, k0, depth, packed_a);
          multiply_block<T>(g, row, rows, column, columns, depth, k0 == 0, packed_a, packed_b);
        }
      }
  }
}

template void gemm_blocked<double>(const BlockedGemm<double>&, int);

}  // namespace trireme::cpu::TRIREME_ISA
