#include "engine/core/convert_float.h"
#include "engine/core/parallel_for.h"
#include "engine/ops/backend/philox.cpu.h"
#include "engine/ops/rows/elementwise.kernels.h"

namespace trireme::cpu::TRIREME_ISA {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements worth a thread

template <class To, class From>
void cast_to(To* y, const From* x, int64_t n, int threads) {
  parallel_for(threads, n, kGrain, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) y[i] = convert_float<To>(x[i]);
  });
}

template <class T>
void dropout_row(const DropoutArgs<T>& a, int64_t row, int64_t begin, int64_t count) {
  using F = compute_t<T>;
  uint32_t storage[3 * kPhiloxBatch];
  const uint64_t first = static_cast<uint64_t>(a.rows[row] * a.total + a.first + begin);
  const uint32_t* words = philox_words(a.key, first, count, storage);
  const int64_t at = row * a.columns + begin;
  const uint32_t threshold = a.threshold;
  const F scale = a.scale;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const F kept = static_cast<F>(a.x[at + i]) * scale;
    F y = words[i] >> 8 >= threshold ? kept : F{0};
    if (a.residual != nullptr) y += static_cast<F>(a.residual[at + i]);
    a.y[at + i] = static_cast<T>(y);
  }
}

}  // namespace

template <class T>
void add(T* y, const T* a, const T* b, int64_t n, int threads) {
  using F = compute_t<T>;
  parallel_for(threads, n, kGrain, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i)
      y[i] = static_cast<T>(static_cast<F>(a[i]) + static_cast<F>(b[i]));
  });
}

template <class T>
void scale(T* y, const T* x, compute_t<T> factor, int64_t n, int threads) {
  using F = compute_t<T>;
  parallel_for(threads, n, kGrain, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) y[i] = static_cast<T>(static_cast<F>(x[i]) * factor);
  });
}

template <class T>
void cast(void* y, DType to, const T* x, int64_t n, int threads) {
  switch (to) {
    case DType::kF64: return cast_to(static_cast<double*>(y), x, n, threads);
    case DType::kF32: return cast_to(static_cast<float*>(y), x, n, threads);
    case DType::kBF16: return cast_to(static_cast<bf16*>(y), x, n, threads);
    case DType::kF16: return cast_to(static_cast<f16*>(y), x, n, threads);
    default: return;  // checked by the op
  }
}

template <class T>
void dropout(const DropoutArgs<T>& a, int threads) {
  const int64_t grain = kGrain / 4 / (a.columns + 1) + 1;
  parallel_for(threads, a.num_rows, grain, [&a](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      for (int64_t c = 0; c < a.columns; c += kPhiloxBatch)
        dropout_row(a, row, c, a.columns - c < kPhiloxBatch ? a.columns - c : kPhiloxBatch);
  });
}

#define TRIREME_INSTANTIATE(T)                                      \
  template void add<T>(T*, const T*, const T*, int64_t, int);       \
  template void scale<T>(T*, const T*, compute_t<T>, int64_t, int); \
  template void cast<T>(void*, DType, const T*, int64_t, int);      \
  template void dropout<T>(const DropoutArgs<T>&, int);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cpu::TRIREME_ISA
