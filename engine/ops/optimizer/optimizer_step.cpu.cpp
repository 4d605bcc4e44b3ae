#include "engine/core/parallel_for.h"
#include "engine/ops/optimizer/optimizer_step.kernels.h"
#include "engine/ops/optimizer/stochastic_rounding.cpu.h"

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

// for_noisy_vectors over the elements of a range, row by row if their global indices have gaps.
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

struct VectorMath {
  template <class V>
  TRIREME_INLINE static V square_root(V x) {
    return square_roots<typename Traits<V>::Scalar>(x);
  }
  template <class V>
  TRIREME_INLINE static V multiply_add(typename Traits<V>::Scalar a, V x, V y) {
    return TRIREME_ISA::multiply_add<V>(splat<V>(a), x, y);
  }
};

// Updates elements [begin, end).
template <class A, class Update>
TRIREME_INLINE void update_elements(const Update& a, int64_t begin, int64_t end) {
  using Rule = typename Update::Rule;
  using T = typename Update::Element;
  using F = compute_t<T>;
  const auto c = a.c;  // copies that no store can alias
  const UpdateRange<T> r = a.range;
  const bool has_m = Rule::kSecondMoment || r.m != nullptr;
  for_elements<A::kNoise>(r, begin, end, [&](int64_t i, auto lanes, Vec<uint32_t> random) {
    Vec<F> p = A::parameter(r, i, lanes), m{}, v{};
    if (has_m) m = A::state(r.m, i, lanes);
    if constexpr (Rule::kSecondMoment) v = A::state(r.v, i, lanes);
    Rule::template element<VectorMath>(c, has_m, p, load_lanes(r.grad + i, lanes), m, v);
    if (has_m) A::set_state(r.m, i, lanes, m, random);
    if constexpr (Rule::kSecondMoment) A::set_state(r.v, i, lanes, v, random);
    A::set_parameter(r, i, lanes, p, random);
  });
}

template <class S, bool kMaster, class Update>
void update_all(const Update& a, int threads) {
  parallel_for(threads, a.range.n, kGrain, [&a](int64_t begin, int64_t end) {
    update_elements<Access<typename Update::Element, S, kMaster>>(a, begin, end);
  });
}

template <bool kMaster, class Update>
void with_state(const Update& a, int threads) {
  using T = typename Update::Element;
  if constexpr (!std::is_same_v<T, double>)
    if (a.range.bf16_state) return update_all<bf16, kMaster>(a, threads);
  update_all<compute_t<T>, kMaster>(a, threads);
}

}  // namespace

template <class T>
void apply_rule(const T& a, int threads) {
  if constexpr (sizeof(typename T::Element) == 2)
    if (a.range.master != nullptr) return with_state<true>(a, threads);
  with_state<false>(a, threads);
}

#define TRIREME_INSTANTIATE_FOR(RULE, T) \
  template void apply_rule<RuleUpdate<RULE, T>>(const RuleUpdate<RULE, T>&, int);
#define TRIREME_INSTANTIATE(RULE)       \
  TRIREME_INSTANTIATE_FOR(RULE, double) \
  TRIREME_INSTANTIATE_FOR(RULE, float)  \
  TRIREME_INSTANTIATE_FOR(RULE, bf16)   \
  TRIREME_INSTANTIATE_FOR(RULE, f16)
TRIREME_UPDATE_RULES(TRIREME_INSTANTIATE)

}  // namespace trireme::cpu::TRIREME_ISA
