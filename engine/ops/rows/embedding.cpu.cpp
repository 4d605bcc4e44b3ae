#include "engine/core/parallel_for.h"
#include "engine/ops/backend/vector_loop.cpu.h"
#include "engine/ops/rows/embedding.kernels.h"

namespace trireme::cpu::TRIREME_ISA {

template <class T>
void embedding_forward(const EmbeddingForward<T>& a, int threads) {
  using F = compute_t<T>;
  constexpr int64_t kGrain = 1 << 14;  // elements worth a thread
  parallel_for(threads, a.rows, kGrain / (a.columns + 1) + 1, [&a](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      T* y = a.y + t * a.columns;
      const int64_t number = a.ids[t] - a.first_entry;
      if (number < 0 || number >= a.entries) {  // of another shard
        if (!a.accumulate)
          __builtin_memset(static_cast<void*>(y), 0, static_cast<size_t>(a.columns) * sizeof(T));
        continue;
      }
      const T* entry = a.table + number * a.columns;
      if (!a.accumulate) {
        __builtin_memcpy(static_cast<void*>(y), entry, static_cast<size_t>(a.columns) * sizeof(T));
        continue;
      }
      for_vectors<F>(a.columns, [&](int64_t c, auto lanes) {
        store_lanes(y + c, lanes, load_lanes(y + c, lanes) + load_lanes(entry + c, lanes));
      });
    }
  });
}

// Two tokens may have the same id, so the threads divide the columns, not the rows: each adds all
// rows in order.
template <class T>
void embedding_backward(const EmbeddingBackward<T>& a, int threads) {
  using F = compute_t<T>;
  constexpr int64_t kGroup = 64;  // columns: whole cache lines for each thread
  const int64_t groups = (a.columns + kGroup - 1) / kGroup;
  const int64_t grain = (1 << 14) / (a.rows * kGroup + 1) + 1;
  parallel_for(threads, groups, grain, [&a](int64_t first_group, int64_t last_group) {
    const int64_t begin = first_group * kGroup;
    const int64_t end = last_group * kGroup < a.columns ? last_group * kGroup : a.columns;
    for (int64_t t = 0; t < a.rows; ++t) {
      const int64_t number = a.ids[t] - a.first_entry;
      if (number < 0 || number >= a.entries) continue;
      F* entry = a.d_table + number * a.columns + begin;
      const T* dy = a.dy + t * a.columns + begin;
      for_vectors<F>(end - begin, [&](int64_t c, auto lanes) {
        store_lanes(entry + c, lanes, load_lanes(entry + c, lanes) + load_lanes(dy + c, lanes));
      });
    }
  });
}

#define TRIREME_INSTANTIATE(T)                                         \
  template void embedding_forward<T>(const EmbeddingForward<T>&, int); \
  template void embedding_backward<T>(const EmbeddingBackward<T>&, int);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cpu::TRIREME_ISA
