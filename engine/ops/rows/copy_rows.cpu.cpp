#include "engine/core/parallel_for.h"
#include "engine/ops/backend/simd.cpu.h"
#include "engine/ops/rows/copy_rows.kernels.h"

namespace trireme::cpu::TRIREME_ISA {
namespace {

constexpr int64_t kGrainElements = 1 << 14;

// to = from, n elements; one of the types is float.
template <class From, class To>
TRIREME_INLINE void convert_row(const From* from, To* to, int64_t n) {
  int64_t j = 0;
  for (; j + kLanes<float> <= n; j += kLanes<float>) store(to + j, load(from + j));
  if (j < n) store_partial(to + j, n - j, load_partial(from + j, n - j));
}

}  // namespace

template <class T>
void widen_rows(const ConvertRows<T>& a, int threads) {
  const int64_t grain = kGrainElements / (a.columns + 1) + 1;
  parallel_for(threads, a.rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      convert_row(a.narrow + i * a.narrow_stride, a.wide + i * a.columns, a.columns);
  });
}

template <class T>
void narrow_rows(const ConvertRows<T>& a, int threads) {
  const int64_t grain = kGrainElements / (a.columns + 1) + 1;
  parallel_for(threads, a.rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      convert_row(a.wide + i * a.columns, a.narrow + i * a.narrow_stride, a.columns);
  });
}

template void widen_rows<bf16>(const ConvertRows<bf16>&, int);
template void widen_rows<f16>(const ConvertRows<f16>&, int);
template void narrow_rows<bf16>(const ConvertRows<bf16>&, int);
template void narrow_rows<f16>(const ConvertRows<f16>&, int);

}  // namespace trireme::cpu::TRIREME_ISA
