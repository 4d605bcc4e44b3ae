#include "engine/ops/sampling/sample.cpu.h"

#include "engine/ops/backend/vector_loop.cpu.h"

namespace trireme::cpu::TRIREME_ISA {
namespace {

constexpr int kHalves = 2;  // vectors of float64 per vector of float

TRIREME_INLINE void widen(Vec<double> (&out)[kHalves], Vec<float> v) {
  typedef float Half __attribute__((vector_size(kVectorBytes / 2)));
  Half half[kHalves];
  __builtin_memcpy(half, &v, sizeof v);
  for (int i = 0; i < kHalves; ++i) out[i] = __builtin_convertvector(half[i], Vec<double>);
}

// Weights of a vector of logits.
template <class T>
TRIREME_INLINE void weigh(Vec<double> (&out)[kHalves], const RowWeights<T>& a, Vec<float> row) {
  const Vec<double> zero{};
  widen(out, row);
  for (int i = 0; i < kHalves; ++i) {
    const Vec<double> distance = (a.largest - out[i]) / a.temperature;
    out[i] = distance > kNegligibleDistance ? zero : fast_exp(-distance);
  }
}

}  // namespace

template <class T>
void row_range(RowRange<T>* range, const T* row, int64_t n) {
  constexpr T kInfinity = __builtin_inff();
  Vec<T> largest = splat<Vec<T>>(-kInfinity), smallest = splat<Vec<T>>(kInfinity);
  int64_t i = 0;
  for (; i + kLanes<T> <= n; i += kLanes<T>) {
    const Vec<T> v = load(row + i);
    largest = v > largest ? v : largest;
    smallest = v < smallest ? (v > -kInfinity ? v : smallest) : smallest;
  }
  const auto above = [](T& most, T v) { most = v > most ? v : most; };
  const auto below = [](T& least, T v) { least = v < least && v > -kInfinity ? v : least; };
  *range = {-kInfinity, kInfinity};
  for (int lane = 0; lane < kLanes<T>; ++lane) {
    above(range->largest, largest[lane]);
    below(range->smallest, smallest[lane]);
  }
  for (; i < n; ++i) {
    above(range->largest, row[i]);
    below(range->smallest, row[i]);
  }
}

template <class T>
void row_weights(const RowWeights<T>& a) {
  constexpr int64_t kHalf = kLanes<double>;
  Vec<double> sums[kHalves] = {};
  Vec<double> weights[kHalves];
  int64_t i = 0;
  for (; i + kLanes<T> <= a.n; i += kLanes<T>) {
    weigh(weights, a, load(a.row + i));
    for (int h = 0; h < kHalves; ++h) {
      sums[h] += weights[h];
      if (a.weights != nullptr) store(a.weights + i + h * kHalf, weights[h]);
    }
  }
  double total = sum(sums[0] + sums[1]);
  if (i < a.n) {
    weigh(weights, a, load_partial(a.row + i, a.n - i));
    for (int64_t k = 0; i + k < a.n; ++k) {
      const double weight = weights[k / kHalf][k % kHalf];
      total += weight;
      if (a.weights != nullptr) a.weights[i + k] = weight;
    }
  }
  *a.sum = total;
}

template <class T>
void row_bins(const RowKeys<T>& a, double per_unit, uint16_t last, uint16_t left_out,
              uint16_t* bin) {
  const auto end = static_cast<double>(last);
  for (int64_t i = 0; i < a.n; ++i) {
    const double key = __builtin_fabs(a.largest - static_cast<double>(a.row[i]) - a.centre);
    double at = key * per_unit;
    at = at < end ? at : end;  // also for NaN, from infinity times 0
    bin[i] = a.weights[i] > 0 ? static_cast<uint16_t>(static_cast<int32_t>(at)) : left_out;
  }
}

template <class T>
void drop_above(const RowKeys<T>& a, double key, T logit, bool keeps_ties) {
  for (int64_t i = 0; i < a.n; ++i) {
    const double own = __builtin_fabs(a.largest - static_cast<double>(a.row[i]) - a.centre);
    const bool stays =
        (own < key) | ((own == key) & ((a.row[i] > logit) | ((a.row[i] == logit) & keeps_ties)));
    a.weights[i] = stays ? a.weights[i] : 0;
  }
}

template <class T>
void row_moment(const RowKeys<T>& a, double* out) {
  const Vec<double> zero{};
  Vec<double> sums[kHalves] = {}, distance[kHalves];
  double total = 0;
  int64_t i = 0;
  for (; i + kLanes<T> <= a.n; i += kLanes<T>) {
    widen(distance, load(a.row + i));
    for (int h = 0; h < kHalves; ++h) {
      const Vec<double> weight = load(a.weights + i + h * kLanes<double>);
      sums[h] += weight > 0 ? weight * (a.largest - distance[h]) : zero;
    }
  }
  for (; i < a.n; ++i)
    if (a.weights[i] > 0) total += a.weights[i] * (a.largest - static_cast<double>(a.row[i]));
  *out = total + sum(sums[0] + sums[1]);
}

template void row_range<float>(RowRange<float>*, const float*, int64_t);
template void row_weights<float>(const RowWeights<float>&);
template void row_bins<float>(const RowKeys<float>&, double, uint16_t, uint16_t, uint16_t*);
template void drop_above<float>(const RowKeys<float>&, double, float, bool);
template void row_moment<float>(const RowKeys<float>&, double*);

}  // namespace trireme::cpu::TRIREME_ISA
