#include "engine/core/parallel_for.h"
#include "engine/ops/backend/vector_loop.cpu.h"
#include "engine/ops/rows/soft_cap.kernels.h"

namespace trireme::cpu::TRIREME_ISA {
namespace {

constexpr int64_t kGrain = 1 << 12;  // elements worth a thread

}  // namespace

template <class T>
void soft_cap_forward(T* y, const T* x, int64_t n, compute_t<T> cap, int threads) {
  parallel_for(threads, n, kGrain, [=](int64_t begin, int64_t end) {
    for_vectors<compute_t<T>>(end - begin, [&](int64_t i, auto lanes) {
      store_lanes(y + begin + i, lanes, capped(load_lanes(x + begin + i, lanes), cap));
    });
  });
}

template <class T>
void soft_cap_backward(T* d, const compute_t<T>* y, int64_t n, compute_t<T> cap, int threads) {
  using F = compute_t<T>;
  parallel_for(threads, n, kGrain, [=](int64_t begin, int64_t end) {
    for_vectors<F>(end - begin, [&](int64_t i, auto lanes) {
      const Vec<F> t = load_lanes(y + begin + i, lanes) / cap;
      store_lanes(d + begin + i, lanes, load_lanes(d + begin + i, lanes) * (F(1) - t * t));
    });
  });
}

#define TRIREME_INSTANTIATE(T)                                                 \
  template void soft_cap_forward<T>(T*, const T*, int64_t, compute_t<T>, int); \
  template void soft_cap_backward<T>(T*, const compute_t<T>*, int64_t, compute_t<T>, int);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cpu::TRIREME_ISA
