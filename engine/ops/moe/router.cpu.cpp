#include "engine/core/parallel_for.h"
#include "engine/ops/backend/vector_loop.cpu.h"
#include "engine/ops/moe/router.kernels.h"

namespace trireme::cpu::TRIREME_ISA {
namespace {

constexpr int64_t kGrain = 1 << 11;  // logits worth a thread

template <class T>
inline constexpr T kLowest = std::is_same_v<T, double> ? T(-__DBL_MAX__) : T(-__FLT_MAX__);

template <class T>
TRIREME_INLINE T row_maximum(const T* x, int64_t n) {
  T top = kLowest<T>;
  for (int64_t i = 0; i < n; ++i) top = x[i] > top ? x[i] : top;
  return top;
}

template <class T>
TRIREME_INLINE T row_sum(const T* x, int64_t n) {
  T total = 0;
  for (int64_t i = 0; i < n; ++i) total += x[i];
  return total;
}

// y = exp(x - max x); returns the sum and the maximum.
template <class T>
TRIREME_INLINE T exponentials(T* y, const T* x, int64_t n, T& top) {
  top = row_maximum(x, n);
  const T shift = top;
  for_vectors<T>(n, [&](int64_t i, auto lanes) {
    store_lanes(y + i, lanes, fast_exp(load_lanes(x + i, lanes) - shift));
  });
  return row_sum(y, n);
}

template <class T>
TRIREME_INLINE void score_row(const RouterForward<T>& a, T* s, const T* x) {
  if (a.sigmoid) {
    for_vectors<T>(a.count, [&](int64_t i, auto lanes) {
      store_lanes(s + i, lanes, fast_sigmoid(load_lanes(x + i, lanes)));
    });
    return;
  }
  T top;
  const T factor = T(1) / exponentials(s, x, a.count, top);
  for (int64_t i = 0; i < a.count; ++i) s[i] *= factor;
}

// Value by which experts are chosen; a NaN is last.
template <class T>
TRIREME_INLINE T choice(const RouterForward<T>& a, const T* s, const T* l, int64_t e) {
  const T value = a.by_logits ? l[e] : a.bias != nullptr ? s[e] + a.bias[e] : s[e];
  return value == value ? value : kLowest<T>;
}

// Position `next` in the order (value descending, index ascending) follows (value, index).
template <class T>
struct Position {
  T value = 0;
  int64_t index = -1;  // -1: before all
  TRIREME_INLINE bool follows(const Position& p) const {
    return p.index < 0 || value < p.value || (value == p.value && index > p.index);
  }
};

// First position of [begin, end) after `before`; index -1 if there is none.
template <class T, class Value>
TRIREME_INLINE Position<T> next_position(int64_t begin, int64_t end, const Position<T>& before,
                                         Value&& value) {
  Position<T> best;
  for (int64_t i = begin; i < end; ++i) {
    const Position<T> p{value(i), i};
    if (p.follows(before) && (best.index < 0 || p.value > best.value)) best = p;
  }
  return best;
}

// Bit g: group g is eligible.
template <class T>
TRIREME_INLINE uint64_t eligible_groups(const RouterForward<T>& a, const T* s, const T* l) {
  if (a.kept_groups == a.groups) return ~uint64_t{0};
  const int64_t width = a.count / a.groups;
  T group[kMaxRouterGroups];
  for (int64_t g = 0; g < a.groups; ++g) {
    const auto value = [&](int64_t e) { return choice(a, s, l, e); };
    const Position<T> first = next_position(g * width, (g + 1) * width, Position<T>{}, value);
    group[g] = first.value;
    if (!a.sigmoid || width == 1) continue;
    group[g] += next_position(g * width, (g + 1) * width, first, value).value;
    if (group[g] != group[g]) group[g] = kLowest<T>;  // infinity and -infinity
  }
  uint64_t kept = 0;
  Position<T> at;
  for (int64_t i = 0; i < a.kept_groups; ++i) {
    at = next_position(int64_t{0}, a.groups, at, [&](int64_t g) { return group[g]; });
    kept |= uint64_t{1} << at.index;
  }
  return kept;
}

template <class T>
TRIREME_INLINE void choose(const RouterForward<T>& a, const T* s, const T* l, int32_t* experts) {
  const uint64_t kept = eligible_groups(a, s, l);
  const int64_t width = a.count / a.groups;
  Position<T> at;
  for (int64_t j = 0; j < a.k; ++j) {
    Position<T> best;
    for (int64_t g = 0; g < a.groups; ++g) {
      if ((kept >> g & 1) == 0) continue;
      const Position<T> p = next_position(g * width, (g + 1) * width, at,
                                          [&](int64_t e) { return choice(a, s, l, e); });
      if (p.index >= 0 && (best.index < 0 || p.value > best.value)) best = p;
    }
    at = best;
    experts[j] = static_cast<int32_t>(at.index);
  }
}

template <class T>
void forward_row(const RouterForward<T>& a, int64_t row) {
  T* s = a.scores + row * a.count;
  const T* l = a.logits + row * a.count;
  int32_t* experts = a.experts + row * a.k;
  T* weights = a.weights + row * a.k;
  score_row(a, s, l);
  if (a.valid != nullptr && a.valid[row] == 0) {
    for (int64_t j = 0; j < a.k; ++j) {
      experts[j] = -1;
      weights[j] = 0;
    }
    return;
  }
  choose(a, s, l, experts);
  T total = static_cast<T>(kRouterWeightFloor);
  for (int64_t j = 0; j < a.k; ++j) total += s[experts[j]];
  const T factor = a.normalize ? a.scale / total : a.scale;
  for (int64_t j = 0; j < a.k; ++j) weights[j] = s[experts[j]] * factor;
}

// d[e] += gradient of the loss with respect to score s_e, through the weights.
template <class T>
TRIREME_INLINE void weights_backward(const RouterBackward<T>& a, int64_t row, const T* s, T* d) {
  const int32_t* experts = a.experts + row * a.k;
  const T* dw = a.d_weights + row * a.k;
  const auto gradient = [&](int64_t j) {
    return a.importance == nullptr ? dw[j] : dw[j] + static_cast<T>(a.importance[experts[j]]);
  };
  T total = static_cast<T>(kRouterWeightFloor), dot = 0;
  for (int64_t j = 0; j < a.k; ++j) {
    total += s[experts[j]];
    dot += gradient(j) * s[experts[j]];
  }
  for (int64_t j = 0; j < a.k; ++j)
    d[experts[j]] +=
        a.normalize ? a.scale * (gradient(j) - dot / total) / total : a.scale * gradient(j);
}

// The same for q = s / sum(s).
template <class T>
TRIREME_INLINE void probability_backward(const RouterBackward<T>& a, int64_t row, const T* s,
                                         T* d) {
  const double* g = a.probability + (a.segments == nullptr ? 0 : a.segments[row]) * a.count;
  T total = 0, dot = 0;
  for (int64_t e = 0; e < a.count; ++e) {
    total += s[e];
    dot += static_cast<T>(g[e]) * s[e];
  }
  for (int64_t e = 0; e < a.count; ++e) d[e] += (static_cast<T>(g[e]) - dot / total) / total;
}

// d[e] += z times the gradient of logsumexp(x)^2
template <class T>
TRIREME_INLINE void z_backward(const RouterBackward<T>& a, const T* x, T* d) {
  T top = row_maximum(x, a.count), total = 0;
  for (int64_t e = 0; e < a.count; ++e) total += fast_exp(x[e] - top);
  const T lse = top + static_cast<T>(__builtin_log(static_cast<double>(total)));
  const T factor = T(2) * static_cast<T>(*a.z) * lse / total;
  for (int64_t e = 0; e < a.count; ++e) d[e] += factor * fast_exp(x[e] - top);
}

template <class T>
void backward_row(const RouterBackward<T>& a, int64_t row) {
  T* d = a.d_logits + row * a.count;
  const T* s = a.scores + row * a.count;
  __builtin_memset(d, 0, static_cast<size_t>(a.count) * sizeof(T));
  if (a.experts[row * a.k] < 0) return;  // padding
  weights_backward(a, row, s, d);
  if (a.probability != nullptr) probability_backward(a, row, s, d);
  if (a.sigmoid) {
    for (int64_t e = 0; e < a.count; ++e) d[e] *= s[e] * (T(1) - s[e]);
  } else {
    T dot = 0;
    for (int64_t e = 0; e < a.count; ++e) dot += d[e] * s[e];
    for (int64_t e = 0; e < a.count; ++e) d[e] = s[e] * (d[e] - dot);
  }
  if (a.z != nullptr && *a.z != 0) z_backward(a, a.logits + row * a.count, d);
}

}  // namespace

template <class T>
void router_forward(const RouterForward<T>& a, int threads) {
  parallel_for(threads, a.rows, kGrain / (a.count * a.k + 1) + 1, [&a](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) forward_row(a, row);
  });
}

template <class T>
void router_backward(const RouterBackward<T>& a, int threads) {
  parallel_for(threads, a.rows, kGrain / (a.count + 1) + 1, [&a](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) backward_row(a, row);
  });
}

#define TRIREME_INSTANTIATE(T)                                   \
  template void router_forward<T>(const RouterForward<T>&, int); \
  template void router_backward<T>(const RouterBackward<T>&, int);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)

}  // namespace trireme::cpu::TRIREME_ISA
