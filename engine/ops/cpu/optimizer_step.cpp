#include "engine/ops/cpu/optimizer_step.h"

#include "engine/core/parallel_for.h"
#include "engine/ops/cpu/stochastic_rounding.h"

namespace trireme::cpu::TRIREME_ISA {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements worth a thread

// T: type of the parameters, S: type of m and v, kMaster: the parameters are kept in float32.
template <class T, class S, bool kMaster>
struct Access {
  using F = compute_t<T>;
  static constexpr bool kRoundsParam = std::is_same_v<T, bf16> && !kMaster;
  static constexpr bool kRoundsState = std::is_same_v<S, bf16>;
  static constexpr bool kNoise = kRoundsParam || kRoundsState;

  template <class Lanes>
  TRIREME_INLINE static Vec<F> parameter(const UpdateRange<T>& r, int64_t i, Lanes lanes) {
    if constexpr (kMaster)
      return load_lanes(r.master + i, lanes);
    else
      return load_lanes(r.param + i, lanes);
  }

  template <class Lanes>
  TRIREME_INLINE static void set_parameter(const UpdateRange<T>& r, int64_t i, Lanes lanes,
                                           Vec<F> p, Vec<uint32_t> random) {
    if constexpr (kMaster) store_lanes(r.master + i, lanes, p);
    if constexpr (kRoundsParam) p = round_stochastically(p, random & 0xffffu);
    store_lanes(r.param + i, lanes, p);
  }

  template <class Lanes>
  TRIREME_INLINE static Vec<F> state(const void* base, int64_t i, Lanes lanes) {
    return load_lanes(static_cast<const S*>(base) + i, lanes);
  }

  template <class Lanes>
  TRIREME_INLINE static void set_state(void* base, int64_t i, Lanes lanes, Vec<F> s,
                                       Vec<uint32_t> random) {
    if constexpr (kRoundsState) s = round_stochastically(s, random >> 16);
    store_lanes(static_cast<S*>(base) + i, lanes, s);
  }
};

// for_noisy_vectors over the elements of a range, row by row where their global indices have gaps.
template <bool kNoise, class T, class Body>
TRIREME_INLINE void for_elements(const UpdateRange<T>& r, int64_t begin, int64_t end, Body&& body) {
  using F = compute_t<T>;
  if (!kNoise || r.width == 0) {
    const auto element0 = static_cast<uint64_t>(r.first + r.offset);
    return for_noisy_vectors<F, kNoise>(begin, end, r.key, element0, body);
  }
  for (int64_t at = begin; at < end;) {
    const int64_t o = r.offset + at, row = o / r.width, column = o % r.width;
    const int64_t left = r.width - column;
    const int64_t stop = end - at < left ? end : at + left;
    const auto element0 = static_cast<uint64_t>(r.first + row * r.stride + column - at);
    for_noisy_vectors<F, kNoise>(at, stop, r.key, element0, body);
    at = stop;
  }
}

struct AdamW {
  template <class A, class T>
  TRIREME_INLINE static void run(const AdamWUpdate<T>& a, int64_t begin, int64_t end) {
    using F = compute_t<T>;
    const auto c = a.c;  // copies that no store can alias
    const UpdateRange<T> r = a.range;
    for_elements<A::kNoise>(r, begin, end, [&](int64_t i, auto lanes, Vec<uint32_t> random) {
      Vec<F> p = A::parameter(r, i, lanes);
      Vec<F> g = load_lanes(r.grad + i, lanes) * c.grad_multiplier;
      if (!c.decoupled) g += c.decay * p;
      const Vec<F> m = c.beta1 * A::state(r.m, i, lanes) + c.one_minus_beta1 * g;
      const Vec<F> v = c.beta2 * A::state(r.v, i, lanes) + c.one_minus_beta2 * (g * g);
      const Vec<F> update = m / (square_roots<F>(v) * c.inverse_sqrt_bias2 + c.eps);
      if (c.decoupled) p -= c.decay * p;
      p -= c.step * update;
      A::set_state(r.m, i, lanes, m, random);
      A::set_state(r.v, i, lanes, v, random);
      A::set_parameter(r, i, lanes, p, random);
    });
  }
};

struct Sgd {
  template <class A, class T>
  TRIREME_INLINE static void run(const SgdUpdate<T>& a, int64_t begin, int64_t end) {
    using F = compute_t<T>;
    const auto c = a.c;
    const UpdateRange<T> r = a.range;
    for_elements<A::kNoise>(r, begin, end, [&](int64_t i, auto lanes, Vec<uint32_t> random) {
      Vec<F> p = A::parameter(r, i, lanes);
      const Vec<F> d = load_lanes(r.grad + i, lanes) * c.grad_multiplier + c.weight_decay * p;
      Vec<F> change = d;
      if (r.m != nullptr) {
        const Vec<F> m = c.first ? d : c.momentum * A::state(r.m, i, lanes) + d;
        change = c.nesterov ? d + c.momentum * m : m;
        A::set_state(r.m, i, lanes, m, random);
      }
      A::set_parameter(r, i, lanes, p - c.learning_rate * change, random);
    });
  }
};

template <class Rule, class T, class S, bool kMaster, class Update>
void update_all(const Update& a, int threads) {
  parallel_for(threads, a.range.n, kGrain, [&a](int64_t begin, int64_t end) {
    Rule::template run<Access<T, S, kMaster>>(a, begin, end);
  });
}

template <class Rule, class T, bool kMaster, class Update>
void with_state(const Update& a, int threads) {
  if constexpr (!std::is_same_v<T, double>)
    if (a.range.bf16_state) return update_all<Rule, T, bf16, kMaster>(a, threads);
  update_all<Rule, T, compute_t<T>, kMaster>(a, threads);
}

template <class Rule, class T, class Update>
void update(const Update& a, int threads) {
  if constexpr (sizeof(T) == 2)
    if (a.range.master != nullptr) return with_state<Rule, T, true>(a, threads);
  with_state<Rule, T, false>(a, threads);
}

}  // namespace

template <class T>
void adamw(const AdamWUpdate<T>& a, int threads) {
  update<AdamW, T>(a, threads);
}

template <class T>
void sgd(const SgdUpdate<T>& a, int threads) {
  update<Sgd, T>(a, threads);
}

#define TRIREME_INSTANTIATE(T)                        \
  template void adamw<T>(const AdamWUpdate<T>&, int); \
  template void sgd<T>(const SgdUpdate<T>&, int);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cpu::TRIREME_ISA
