#include "engine/core/parallel_for.h"
#include "engine/ops/backend/vector_loop.cpu.h"
#include "engine/ops/loss/cross_entropy.kernels.h"

namespace trireme::cpu::TRIREME_ISA {
namespace {

template <class F>
inline constexpr F kLowest = std::is_same_v<F, double> ? F(-__DBL_MAX__) : F(-__FLT_MAX__);

template <class F>
TRIREME_INLINE F lane_maximum(Vec<F> v) {
  F out = v[0];
  for (int i = 1; i < kLanes<F>; ++i) out = v[i] > out ? v[i] : out;
  return out;
}

// Largest logit and sum of exp(logit - largest): one pass over memory, because each chunk is still
// in the first-level cache when it is read again.
template <class F>
struct SoftmaxSum {
  F largest = kLowest<F>;  // not -infinity: a logit of -infinity must count as 0, not NaN
  F total = 0;

  TRIREME_INLINE void add(const F* x, int64_t n) {
    Vec<F> top = splat<Vec<F>>(largest);
    for_vectors<F>(n, [&](int64_t i, auto lanes) {
      const Vec<F> v = valid_lanes(load_lanes(x + i, lanes), lanes, kLowest<F>);
      top = v > top ? v : top;
    });
    const F before = largest;
    largest = lane_maximum<F>(top);
    Vec<F> sums{};
    for_vectors<F>(n, [&](int64_t i, auto lanes) {
      sums += valid_lanes(fast_exp(load_lanes(x + i, lanes) - largest), lanes);
    });
    total = total * fast_exp(before - largest) + sum(sums);
  }
};

template <class F>
TRIREME_INLINE SoftmaxSum<F> softmax_sum(const F* x, int64_t n) {
  constexpr int64_t kChunk = 2048;
  SoftmaxSum<F> out;
  for (int64_t i = 0; i < n; i += kChunk) out.add(x + i, n - i < kChunk ? n - i : kChunk);
  return out;
}

template <class D>
TRIREME_INLINE void zero(D* p, int64_t n) {
  __builtin_memset(static_cast<void*>(p), 0, static_cast<size_t>(n) * sizeof(D));
}

// target < 0: the row's target is in another part of the vocabulary.
template <class D, class F>
void gradient_row(const CrossEntropy<F>& a, D* d, const F* x, int64_t target,
                  const SoftmaxSum<F>& softmax) {
  const F scale = static_cast<F>(*a.scale);
  const F factor = scale / softmax.total;
  // Before the loop, which may overwrite the logit.
  const F at_target =
      target < 0 ? F(0) : fast_exp(x[target] - softmax.largest) / softmax.total - F(1);
  for_vectors<F>(a.valid_columns, [&](int64_t i, auto lanes) {
    const Vec<F> e = fast_exp(load_lanes(x + i, lanes) - softmax.largest);
    store_lanes(d + i, lanes, e * factor);
  });
  if (target >= 0) d[target] = static_cast<D>(at_target * scale);
  zero(d + a.valid_columns, a.columns - a.valid_columns);
}

// Statistics of a row: its softmax, the target's column in this part (or -1) and logit.
template <class F>
struct RowTarget {
  SoftmaxSum<F> softmax;
  int64_t column;
  double logit, total, largest;
};

template <class F>
RowTarget<F> row_target(const CrossEntropy<F>& a, const F* x, int64_t row) {
  RowTarget<F> r;
  const int64_t column = a.targets[row] - a.first_column;
  if (a.statistics == nullptr) {
    r.softmax = softmax_sum(x, a.valid_columns);
    r.column = column;
    r.logit = static_cast<double>(x[column]);
    r.total = static_cast<double>(r.softmax.total);
    r.largest = static_cast<double>(r.softmax.largest);
  } else {
    const double* known = a.statistics + row * 3;
    r.column = column >= 0 && column < a.valid_columns ? column : -1;
    r.largest = known[0];
    r.total = known[1];
    r.logit = known[2];
    r.softmax.largest = static_cast<F>(r.largest);
    r.softmax.total = static_cast<F>(r.total);
  }
  return r;
}

template <class D, class F>
void rows_of(const CrossEntropy<F>& a, int64_t begin, int64_t end) {
  D* const gradient = static_cast<D*>(a.d_logits);
  for (int64_t row = begin; row < end; ++row) {
    const F* x = a.logits + row * a.logits_stride;
    D* d = gradient == nullptr ? nullptr : gradient + row * a.d_stride;
    double loss = 0;
    if (a.targets[row] == a.ignored_target) {
      if (d != nullptr) zero(d, a.columns);
    } else {
      const RowTarget<F> target = row_target(a, x, row);
      loss = __builtin_log(target.total) + (target.largest - target.logit);
      if (d != nullptr) gradient_row(a, d, x, target.column, target.softmax);
    }
    a.row_loss[row] = loss;
    if (a.token_loss != nullptr) a.token_loss[row] = static_cast<F>(loss);
  }
}

}  // namespace

template <class T>
void cross_entropy(const CrossEntropy<T>& a, int threads) {
  constexpr int64_t kGrain = 1 << 12;  // logits worth a thread
  parallel_for(threads, a.rows, kGrain / (a.columns + 1) + 1, [&a](int64_t begin, int64_t end) {
    if constexpr (std::is_same_v<T, float>) {
      if (a.d_dtype == DType::kBF16) return rows_of<bf16>(a, begin, end);
      if (a.d_dtype == DType::kF16) return rows_of<f16>(a, begin, end);
    }
    rows_of<T>(a, begin, end);
  });
}

template <class T>
void softmax_statistics(const SoftmaxStatistics<T>& a, int threads) {
  constexpr int64_t kGrain = 1 << 12;
  parallel_for(threads, a.rows, kGrain / (a.columns + 1) + 1, [&a](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* x = a.logits + row * a.logits_stride;
      const SoftmaxSum<T> softmax = softmax_sum(x, a.columns);
      const int64_t column = a.targets[row] - a.first_column;
      const bool here = a.targets[row] != a.ignored_target && column >= 0 && column < a.columns;
      double* out = a.statistics + row * 3;
      out[0] = static_cast<double>(softmax.largest);
      out[1] = static_cast<double>(softmax.total);
      out[2] = here ? static_cast<double>(x[column]) : -__builtin_inf();
    }
  });
}

template void softmax_statistics<double>(const SoftmaxStatistics<double>&, int);
template void softmax_statistics<float>(const SoftmaxStatistics<float>&, int);
template void cross_entropy<double>(const CrossEntropy<double>&, int);
template void cross_entropy<float>(const CrossEntropy<float>&, int);

}  // namespace trireme::cpu::TRIREME_ISA
