#include "engine/ops/backend/elements.cuda.h"
#include "engine/ops/backend/math.cuda.h"
#include "engine/ops/rows/activation.kernels.h"
#include "engine/ops/rows/column_sums.cuda.h"

namespace trireme::cuda {
namespace {

// 0 and 1 in the limits, where the exponential overflows or vanishes.
template <class F>
__device__ F sigmoid(F x) {
  return F{1} / (F{1} + exponential(-x));
}

template <class F>
struct ValueAndSlope {
  F value, slope;
};

template <class F>
constexpr F kTwoA = F(2 * 0.79788456080286535588);  // 2 sqrt(2 / pi)
template <class F>
constexpr F kB = F(0.044715);

// The functors of engine/ops/rows/activation.cpu.cpp.
struct Gelu {
  template <class F>
  static __device__ F value(F x) {
    return x * sigmoid(kTwoA<F> * (x + kB<F> * x * x * x));
  }
  template <class F>
  static __device__ ValueAndSlope<F> value_and_slope(F x) {
    const F s = sigmoid(kTwoA<F> * (x + kB<F> * x * x * x));
    return {x * s, s + x * s * (F(1) - s) * kTwoA<F> * (F(1) + F(3) * kB<F> * x * x)};
  }
};

struct Silu {
  template <class F>
  static __device__ F value(F x) {
    return x * sigmoid(x);
  }
  template <class F>
  static __device__ ValueAndSlope<F> value_and_slope(F x) {
    const F s = sigmoid(x), silu = x * s;
    return {silu, s + silu * (F(1) - s)};
  }
};

template <class Work>
void with_function(ActivationFunction f, Work&& work) {
  switch (f) {
    case ActivationFunction::kGelu: return work(Gelu{});
    case ActivationFunction::kSilu: return work(Silu{});
  }
}

template <class Function, class T, int N>
struct Forward {
  T* y;
  const T* x;
  __device__ void operator()(int64_t item) const {
    auto e = load_pack<T, N>(x, item);
#pragma unroll
    for (int i = 0; i < N; ++i) e.v[i] = static_cast<T>(Function::value(to_compute(e.v[i])));
    store_pack<T, N>(y, item, e);
  }
};

template <class Function, class T, int N>
struct Backward {
  T* dx;
  const T *dy, *x;
  __device__ void operator()(int64_t item) const {
    auto d = load_pack<T, N>(dy, item);
    const auto e = load_pack<T, N>(x, item);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const auto slope = Function::value_and_slope(to_compute(e.v[i])).slope;
      d.v[i] = static_cast<T>(to_compute(d.v[i]) * slope);
    }
    store_pack<T, N>(dx, item, d);
  }
};

// Item of (rows, packs); the gate's pack is offset by one row of packs per preceding row, and the
// up projection's follows one row later.
template <class Function, class T, int N>
struct GatedForward {
  T* y;
  const T* gate_up;
  int64_t packs;  // per row of y
  __device__ void operator()(int64_t item) const {
    const int64_t gate = item + quotient(item, packs) * packs;
    auto z = load_pack<T, N>(gate_up, gate);
    const auto up = load_pack<T, N>(gate_up, gate + packs);
#pragma unroll
    for (int i = 0; i < N; ++i)
      z.v[i] = static_cast<T>(Function::value(to_compute(z.v[i])) * to_compute(up.v[i]));
    store_pack<T, N>(y, item, z);
  }
};

template <class Function, class T, int N>
struct GatedBackward {
  T* d_gate_up;
  const T *dy, *gate_up;
  int64_t packs;
  __device__ void operator()(int64_t item) const {
    using F = compute_t<T>;
    const int64_t gate = item + quotient(item, packs) * packs;
    const auto dv = load_pack<T, N>(dy, item);
    auto z = load_pack<T, N>(gate_up, gate), up = load_pack<T, N>(gate_up, gate + packs);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const F u = to_compute(up.v[i]), d = to_compute(dv.v[i]);
      const ValueAndSlope<F> f = Function::value_and_slope(to_compute(z.v[i]));
      z.v[i] = static_cast<T>(d * u * f.slope);
      up.v[i] = static_cast<T>(d * f.value);
    }
    store_pack<T, N>(d_gate_up, gate, z);
    store_pack<T, N>(d_gate_up, gate + packs, up);
  }
};

template <class T, int N>
struct AddBias {
  T* y;
  const T* bias;
  int64_t packs;
  __device__ void operator()(int64_t item) const {
    auto e = load_pack<T, N>(y, item);
    const auto b = load_pack<T, N>(bias, item - quotient(item, packs) * packs);
#pragma unroll
    for (int i = 0; i < N; ++i) e.v[i] = static_cast<T>(to_compute(e.v[i]) + to_compute(b.v[i]));
    store_pack<T, N>(y, item, e);
  }
};

constexpr int kBiasThreads = 128;

// Block (x, y) adds up row block y of the packs of columns that start at x * kBiasThreads.
template <class T, int N>
__global__ void __launch_bounds__(kBiasThreads) bias_backward_kernel(cpu::BiasBackward<T> a) {
  begin_kernel();
  using F = compute_t<T>;
  const int64_t packs = a.columns / N;
  const int64_t p = static_cast<int64_t>(blockIdx.x) * kBiasThreads + threadIdx.x;
  if (p >= packs) return;
  Pack<F, N> total{};
  const int64_t last = first_row(blockIdx.y + 1, a.blocks, a.rows);
#pragma unroll 4
  for (int64_t r = first_row(blockIdx.y, a.blocks, a.rows); r < last; ++r) {
    const auto d = load_pack<T, N>(a.dy, r * packs + p);
#pragma unroll
    for (int i = 0; i < N; ++i) total.v[i] += to_compute(d.v[i]);
  }
  store_pack<F, N>(a.partial, blockIdx.y * packs + p, total);
}

}  // namespace

template <class T>
void activation_forward(Context& gpu, ActivationFunction f, T* y, const T* x, int64_t n) {
  with_function(f, [&]<class Function>(Function) {
    with_pack<T>(
        n,
        [&]<int N>() {
          for_each_item(gpu, op_names(f).forward, n / N, Forward<Function, T, N>{y, x});
        },
        y, x);
  });
}

template <class T>
void activation_backward(Context& gpu, ActivationFunction f, T* dx, const T* dy, const T* x,
                         int64_t n) {
  with_function(f, [&]<class Function>(Function) {
    with_pack<T>(
        n,
        [&]<int N>() {
          for_each_item(gpu, op_names(f).backward, n / N, Backward<Function, T, N>{dx, dy, x});
        },
        dx, dy, x);
  });
}

template <class T>
void gated_forward(Context& gpu, ActivationFunction f, T* y, const T* gate_up, int64_t rows,
                   int64_t columns) {
  with_function(f, [&]<class Function>(Function) {
    with_pack<T>(
        columns,
        [&]<int N>() {
          const int64_t packs = columns / N;
          for_each_item(gpu, op_names(f).gated_forward, rows * packs,
                        GatedForward<Function, T, N>{y, gate_up, packs});
        },
        y, gate_up);
  });
}

template <class T>
void gated_backward(Context& gpu, ActivationFunction f, T* d_gate_up, const T* dy, const T* gate_up,
                    int64_t rows, int64_t columns) {
  with_function(f, [&]<class Function>(Function) {
    with_pack<T>(
        columns,
        [&]<int N>() {
          const int64_t packs = columns / N;
          for_each_item(gpu, op_names(f).gated_backward, rows * packs,
                        GatedBackward<Function, T, N>{d_gate_up, dy, gate_up, packs});
        },
        d_gate_up, dy, gate_up);
  });
}

template <class T>
void add_bias(Context& gpu, T* y, const T* bias, int64_t rows, int64_t columns) {
  with_pack<T>(
      columns,
      [&]<int N>() {
        const int64_t packs = columns / N;
        for_each_item(gpu, "add_bias", rows * packs, AddBias<T, N>{y, bias, packs});
      },
      y, bias);
}

template <class T>
void bias_backward(Context& gpu, const cpu::BiasBackward<T>& a) {
  with_pack<T>(
      a.columns,
      [&]<int N>() {
        const int64_t chunks = blocks_for(a.columns / N, kBiasThreads);
        launch(gpu, "bias_backward", bias_backward_kernel<T, N>,
               {.blocks = {chunks, a.blocks}, .threads = kBiasThreads}, a);
      },
      a.dy);
  column_sums(gpu, "bias_sums", a.db, a.partial, a.blocks, a.columns, a.accumulate);
}

#define TRIREME_INSTANTIATE(T)                                                                   \
  template void activation_forward<T>(Context&, ActivationFunction, T*, const T*, int64_t);      \
  template void activation_backward<T>(Context&, ActivationFunction, T*, const T*, const T*,     \
                                       int64_t);                                                 \
  template void gated_forward<T>(Context&, ActivationFunction, T*, const T*, int64_t, int64_t);  \
  template void gated_backward<T>(Context&, ActivationFunction, T*, const T*, const T*, int64_t, \
                                  int64_t);                                                      \
  template void add_bias<T>(Context&, T*, const T*, int64_t, int64_t);                           \
  template void bias_backward<T>(Context&, const cpu::BiasBackward<T>&);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cuda
