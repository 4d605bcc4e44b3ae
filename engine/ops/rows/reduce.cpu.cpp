#include "engine/ops/rows/reduce.cpu.h"

#include "engine/core/dtype.h"
#include "engine/ops/rows/reduce.h"

namespace trireme::cpu::TRIREME_ISA {
namespace {

// Type of partial results: 16-bit floats are rounded once, at the end.
template <class T>
struct Partial {
  using type = T;
};
template <>
struct Partial<bf16> {
  using type = float;
};
template <>
struct Partial<f16> {
  using type = float;
};

template <int kOp, class P>
[[gnu::always_inline]] inline P combine(P a, P b) {
  if constexpr (kOp == static_cast<int>(ReduceOp::kSum)) {
    if constexpr (static_cast<P>(1) / 2 == 0) {  // integers: wrap without undefined behaviour
      using U = decltype(P{} + 0u + sizeof(P));
      return static_cast<P>(static_cast<U>(a) + static_cast<U>(b));
    } else {
      return a + b;
    }
  } else if constexpr (kOp == static_cast<int>(ReduceOp::kMax)) {
    return a > b || a != a ? a : b;
  } else {
    return a < b || a != a ? a : b;
  }
}

// Partial results of one block stay in the first-level cache while the inputs are streamed.
constexpr int64_t kBlock = 1024;

template <int kOp, class T>
void reduce(T* out, const void* const* in, int64_t count, int64_t n) {
  using P = typename Partial<T>::type;
  const auto input = [=](int64_t j) { return static_cast<const T*>(in[j]); };
  if (count == 1) {
    for (int64_t k = 0; k < n; ++k) out[k] = input(0)[k];
    return;
  }
  P partial[kBlock];
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t m = n - begin < kBlock ? n - begin : kBlock;
    T* y = out + begin;
    const T* a = input(0) + begin;
    const T* b = input(1) + begin;
    if (count == 2) {
      for (int64_t k = 0; k < m; ++k)
        y[k] = static_cast<T>(combine<kOp>(static_cast<P>(a[k]), static_cast<P>(b[k])));
      continue;
    }
    for (int64_t k = 0; k < m; ++k)
      partial[k] = combine<kOp>(static_cast<P>(a[k]), static_cast<P>(b[k]));
    for (int64_t j = 2; j + 1 < count; ++j) {
      const T* x = input(j) + begin;
      for (int64_t k = 0; k < m; ++k) partial[k] = combine<kOp>(partial[k], static_cast<P>(x[k]));
    }
    const T* last = input(count - 1) + begin;
    for (int64_t k = 0; k < m; ++k)
      y[k] = static_cast<T>(combine<kOp>(partial[k], static_cast<P>(last[k])));
  }
}

}  // namespace

template <class T>
void reduce_ranges(T* out, const void* const* in, int64_t count, int64_t n, int op) {
  switch (static_cast<ReduceOp>(op)) {
    case ReduceOp::kSum: return reduce<static_cast<int>(ReduceOp::kSum)>(out, in, count, n);
    case ReduceOp::kMax: return reduce<static_cast<int>(ReduceOp::kMax)>(out, in, count, n);
    case ReduceOp::kMin: return reduce<static_cast<int>(ReduceOp::kMin)>(out, in, count, n);
  }
}

template <class T>
void accumulate_as_float(float* acc, const T* x, int64_t n) {
  for (int64_t k = 0; k < n; ++k) acc[k] += static_cast<float>(x[k]);
}

template <class T>
void round_from_float(T* y, const float* acc, int64_t n) {
  for (int64_t k = 0; k < n; ++k) y[k] = static_cast<T>(acc[k]);
}

template void reduce_ranges<double>(double*, const void* const*, int64_t, int64_t, int);
template void reduce_ranges<float>(float*, const void* const*, int64_t, int64_t, int);
template void reduce_ranges<bf16>(bf16*, const void* const*, int64_t, int64_t, int);
template void reduce_ranges<f16>(f16*, const void* const*, int64_t, int64_t, int);
template void reduce_ranges<int64_t>(int64_t*, const void* const*, int64_t, int64_t, int);
template void reduce_ranges<int32_t>(int32_t*, const void* const*, int64_t, int64_t, int);
template void accumulate_as_float<bf16>(float*, const bf16*, int64_t);
template void accumulate_as_float<f16>(float*, const f16*, int64_t);
template void round_from_float<bf16>(bf16*, const float*, int64_t);
template void round_from_float<f16>(f16*, const float*, int64_t);

}  // namespace trireme::cpu::TRIREME_ISA
