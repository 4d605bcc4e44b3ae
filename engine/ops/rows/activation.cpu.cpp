#include "engine/ops/rows/activation.kernels.h"
#include "engine/ops/rows/column_sums.cpu.h"

namespace trireme::cpu::TRIREME_ISA {
namespace {

constexpr int64_t kGrain = 1 << 12;  // elements worth a thread

// A function's value and slope of a vector of elements.
template <class V>
struct ValueAndSlope {
  V value, slope;
};

// tanh form of GELU: y = x/2 (1 + tanh u), u = a (x + b x^3). Because (1 + tanh u) / 2 is the
// sigmoid of 2u, y = x sigmoid(2u): one exponential, and no cancellation for negative x.
// With s = sigmoid(2u): y' = s + x s (1 - s) 2u'.
struct Gelu {
  template <class F>
  static constexpr F kTwoA = F(2 * 0.79788456080286535588);  // 2 sqrt(2 / pi)
  template <class F>
  static constexpr F kB = F(0.044715);

  template <class V>
  TRIREME_INLINE static V value(V x) {
    using F = typename Traits<V>::Scalar;
    return x * fast_sigmoid(kTwoA<F> * (x + kB<F> * x * x * x));
  }
  template <class V>
  TRIREME_INLINE static ValueAndSlope<V> value_and_slope(V x) {
    using F = typename Traits<V>::Scalar;
    const V s = fast_sigmoid(kTwoA<F> * (x + kB<F> * x * x * x));
    return {x * s, s + x * s * (F(1) - s) * kTwoA<F> * (F(1) + F(3) * kB<F> * x * x)};
  }
};

// y = x s with s = sigmoid(x): y' = s + x s (1 - s).
struct Silu {
  template <class V>
  TRIREME_INLINE static V value(V x) {
    return x * fast_sigmoid(x);
  }
  template <class V>
  TRIREME_INLINE static ValueAndSlope<V> value_and_slope(V x) {
    using F = typename Traits<V>::Scalar;
    const V s = fast_sigmoid(x), silu = x * s;
    return {silu, s + silu * (F(1) - s)};
  }
};

template <class Work>
TRIREME_INLINE void with_function(ActivationFunction f, Work&& work) {
  switch (f) {
    case ActivationFunction::kGelu: return work(Gelu{});
    case ActivationFunction::kSilu: return work(Silu{});
  }
}

template <class Function, class T>
TRIREME_INLINE void gated_row(T* y, const T* gate, const T* up, int64_t columns) {
  using F = compute_t<T>;
  for_vectors<F>(columns, [&](int64_t c, auto lanes) {
    store_lanes(y + c, lanes,
                Function::value(load_lanes(gate + c, lanes)) * load_lanes(up + c, lanes));
  });
}

// y = f(z) u:  dz = dy u f'(z),  du = dy f(z).
template <class Function, class T>
TRIREME_INLINE void gated_backward_row(T* d_gate, T* d_up, const T* dy, const T* gate, const T* up,
                                       int64_t columns) {
  using F = compute_t<T>;
  for_vectors<F>(columns, [&](int64_t c, auto lanes) {
    const Vec<F> z = load_lanes(gate + c, lanes), u = load_lanes(up + c, lanes);
    const Vec<F> d = load_lanes(dy + c, lanes);
    const ValueAndSlope<Vec<F>> f = Function::value_and_slope(z);
    store_lanes(d_gate + c, lanes, d * u * f.slope);
    store_lanes(d_up + c, lanes, d * f.value);
  });
}

}  // namespace

template <class T>
void activation_forward(ActivationFunction f, T* y, const T* x, int64_t n, int threads) {
  with_function(f, [&]<class Function>(Function) {
    parallel_for(threads, n, kGrain, [=](int64_t begin, int64_t end) {
      for_vectors<compute_t<T>>(end - begin, [&](int64_t i, auto lanes) {
        store_lanes(y + begin + i, lanes, Function::value(load_lanes(x + begin + i, lanes)));
      });
    });
  });
}

template <class T>
void activation_backward(ActivationFunction f, T* dx, const T* dy, const T* x, int64_t n,
                         int threads) {
  using F = compute_t<T>;
  with_function(f, [&]<class Function>(Function) {
    parallel_for(threads, n, kGrain, [=](int64_t begin, int64_t end) {
      for_vectors<F>(end - begin, [&](int64_t i, auto lanes) {
        const Vec<F> d = load_lanes(dy + begin + i, lanes);
        const Vec<F> slope = Function::value_and_slope(load_lanes(x + begin + i, lanes)).slope;
        store_lanes(dx + begin + i, lanes, d * slope);
      });
    });
  });
}

template <class T>
void gated_forward(ActivationFunction f, T* y, const T* gate_up, int64_t rows, int64_t columns,
                   int threads) {
  with_function(f, [&]<class Function>(Function) {
    parallel_for(threads, rows, kGrain / (columns + 1) + 1, [=](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const T* gate = gate_up + 2 * r * columns;
        gated_row<Function>(y + r * columns, gate, gate + columns, columns);
      }
    });
  });
}

template <class T>
void gated_backward(ActivationFunction f, T* d_gate_up, const T* dy, const T* gate_up, int64_t rows,
                    int64_t columns, int threads) {
  with_function(f, [&]<class Function>(Function) {
    parallel_for(threads, rows, kGrain / (columns + 1) + 1, [=](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const T* gate = gate_up + 2 * r * columns;
        T* d_gate = d_gate_up + 2 * r * columns;
        gated_backward_row<Function>(d_gate, d_gate + columns, dy + r * columns, gate,
                                     gate + columns, columns);
      }
    });
  });
}

template <class T>
void add_bias(T* y, const T* bias, int64_t rows, int64_t columns, int threads) {
  using F = compute_t<T>;
  parallel_for(threads, rows, kGrain / (columns + 1) + 1, [=](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      for_vectors<F>(columns, [&](int64_t c, auto lanes) {
        T* out = y + r * columns + c;
        store_lanes(out, lanes, load_lanes(out, lanes) + load_lanes(bias + c, lanes));
      });
  });
}

template <class T>
void bias_backward(const BiasBackward<T>& a, int threads) {
  using F = compute_t<T>;
  for_row_blocks(threads, a.blocks, a.rows, a.columns,
                 [&](int64_t block, int64_t begin, int64_t end) {
                   F* total = a.partial + block * a.columns;
                   __builtin_memset(total, 0, static_cast<size_t>(a.columns) * sizeof(F));
                   for (int64_t r = begin; r < end; ++r)
                     for_vectors<F>(a.columns, [&](int64_t c, auto lanes) {
                       const Vec<F> d = load_lanes(a.dy + r * a.columns + c, lanes);
                       store_lanes(total + c, lanes, load_lanes(total + c, lanes) + d);
                     });
                 });
  add_partials(a.db, a.partial, a.blocks, a.columns, a.accumulate);
}

#define TRIREME_INSTANTIATE(T)                                                                    \
  template void activation_forward<T>(ActivationFunction, T*, const T*, int64_t, int);            \
  template void activation_backward<T>(ActivationFunction, T*, const T*, const T*, int64_t, int); \
  template void gated_forward<T>(ActivationFunction, T*, const T*, int64_t, int64_t, int);        \
  template void gated_backward<T>(ActivationFunction, T*, const T*, const T*, int64_t, int64_t,   \
                                  int);                                                           \
  template void add_bias<T>(T*, const T*, int64_t, int64_t, int);                                 \
  template void bias_backward<T>(const BiasBackward<T>&, int);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cpu::TRIREME_ISA
