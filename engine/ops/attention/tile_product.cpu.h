// C = A B or C += A B for small blocks in cache: the inner loop of attention.
//
//   C (m, n) row stride ldc     B (k, n) row stride ldb     A (m, k) with any two strides
// n is a multiple of the vector width; A is read one element at a time and broadcast, so it may be
// a transposed or a strided view; B and C are read by whole vectors. Each element of C is summed
// over k in ascending order, onto its old value when kAccumulate, onto zero otherwise.
#pragma once

#include "engine/ops/backend/simd.cpu.h"

namespace trireme::cpu::TRIREME_ISA {

// Rows and vectors of C in registers: as many as leave room for a row of B and an element of A.
#if defined(TRIREME_ISA_avx512)
inline constexpr int kTileRows = 6, kTileVectors = 4;
#elif defined(TRIREME_ISA_avx2)
inline constexpr int kTileRows = 6, kTileVectors = 2;
#else
inline constexpr int kTileRows = 4, kTileVectors = 2;
#endif

template <class T>
struct TileProduct {
  T* c;
  int64_t ldc;
  const T* a;
  int64_t a_row, a_column;  // strides of A along m and along k; all strides are in elements
  const T* b;
  int64_t ldb;
  int64_t m, n, k;
};

template <class T, bool kAccumulate, int kRows, int kVectors>
TRIREME_INLINE void product_tile(T* c, int64_t ldc, const T* a, int64_t a_row, int64_t a_column,
                                 const T* b, int64_t ldb, int64_t k) {
  constexpr int kN = kLanes<T>;
  Vec<T> sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j)
      sum[i][j] = kAccumulate ? load(c + i * ldc + j * kN) : Vec<T>{};
  for (int64_t p = 0; p < k; ++p) {
    Vec<T> row[kVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) row[j] = load(b + p * ldb + j * kN);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const T x = a[i * a_row + p * a_column];
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j)
        sum[i][j] = multiply_add(splat<Vec<T>>(x), row[j], sum[i][j]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) store(c + i * ldc + j * kN, sum[i][j]);
}

// Computes all rows of one strip of kVectors vectors; the remaining rows by a smaller tile.
template <class T, bool kAccumulate, int kVectors>
void product_strip(const TileProduct<T>& t, int64_t column) {
  const auto rows = [&]<int kRows>(int64_t i) {
    product_tile<T, kAccumulate, kRows, kVectors>(t.c + i * t.ldc + column, t.ldc,
                                                  t.a + i * t.a_row, t.a_row, t.a_column,
                                                  t.b + column, t.ldb, t.k);
  };
  int64_t i = 0;
  for (; i + kTileRows <= t.m; i += kTileRows) rows.template operator()<kTileRows>(i);
  switch (t.m - i) {
    case 5: rows.template operator()<5>(i); break;
    case 4: rows.template operator()<4>(i); break;
    case 3: rows.template operator()<3>(i); break;
    case 2: rows.template operator()<2>(i); break;
    case 1: rows.template operator()<1>(i); break;
    default: break;
  }
}

template <bool kAccumulate, class T>
void tile_product(const TileProduct<T>& t) {
  constexpr int kN = kLanes<T>;
  int64_t column = 0;
  for (; column + kTileVectors * kN <= t.n; column += kTileVectors * kN)
    product_strip<T, kAccumulate, kTileVectors>(t, column);
  switch ((t.n - column) / kN) {
    case 3: product_strip<T, kAccumulate, 3>(t, column); break;
    case 2: product_strip<T, kAccumulate, 2>(t, column); break;
    case 1: product_strip<T, kAccumulate, 1>(t, column); break;
    default: break;
  }
}

}  // namespace trireme::cpu::TRIREME_ISA
