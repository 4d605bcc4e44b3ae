#include "engine/ops/backend/kernel.cuda.h"
#include "engine/ops/backend/math.cuda.h"
#include "engine/ops/optimizer/optimizer_step.kernels.h"

namespace trireme::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kBlocksAMultiprocessor = 8;

// words[k] = word number first + k of the key.
template <int N>
__device__ void consecutive_words(const RandomKey& key, uint64_t first, uint32_t (&words)[N]) {
  const PhiloxBlock a = philox(key, first / 4);
  const int skipped = static_cast<int>(first % 4);
  uint32_t all[8] = {a[0], a[1], a[2], a[3], 0, 0, 0, 0};
  if (skipped + N > 4) {
    const PhiloxBlock b = philox(key, first / 4 + 1);
    all[4] = b[0], all[5] = b[1], all[6] = b[2], all[7] = b[3];
  }
  // Shifted by one and by two places instead of indexed, so that all stay in registers.
  if (skipped & 1) {
#pragma unroll
    for (int i = 0; i < 7; ++i) all[i] = all[i + 1];
  }
  if (skipped & 2) {
#pragma unroll
    for (int i = 0; i < 6; ++i) all[i] = all[i + 2];
  }
#pragma unroll
  for (int i = 0; i < N; ++i) words[i] = all[i];
}

// Words of elements [i, i + N) of a range, whose global indices have gaps between rows.
template <int N, class T>
__device__ void element_words(const cpu::UpdateRange<T>& r, const RandomKey& key, int64_t i,
                              uint32_t (&words)[N]) {
  const int64_t o = r.offset + i;
  if (r.width == 0) return consecutive_words(key, static_cast<uint64_t>(r.first + o), words);
  const int64_t row = o / r.width, column = o - row * r.width;
  if (column + N <= r.width)
    return consecutive_words(key, static_cast<uint64_t>(r.first + row * r.stride + column), words);
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const int64_t at = (o + k) / r.width;
    uint32_t word[1];
    consecutive_words(key, static_cast<uint64_t>(r.first + at * r.stride + (o + k - at * r.width)),
                      word);
    words[k] = word[0];
  }
}

// Like round_stochastically() of the CPU: NaN is made quiet and gets no noise.
__device__ inline bf16 round_stochastically(float v, uint32_t noise) {
  const auto u = std::bit_cast<uint32_t>(v);
  bf16 out;
  out.bits = static_cast<uint16_t>((v == v ? u + noise : u | 0x00400000u) >> 16);
  return out;
}

struct ThreadMath {
  template <class F>
  static __device__ F square_root(F x) {
    return cuda::square_root(x);
  }
  template <class F>
  static __device__ F multiply_add(F a, F x, F y) {
    return a * x + y;
  }
};

// Elements [i, i + N) of a range. S: type of m and v.
template <class Rule, class T, class S, bool kMaster, int N>
__device__ void update_elements(const cpu::UpdateRange<T>& r, const RandomKey& key,
                                const typename Rule::template Coefficients<compute_t<T>>& c,
                                int64_t i) {
  using F = compute_t<T>;
  constexpr bool kRoundsParam = std::is_same_v<T, bf16> && !kMaster;
  constexpr bool kRoundsState = std::is_same_v<S, bf16>;
  uint32_t words[N] = {};
  if constexpr (kRoundsParam || kRoundsState) element_words(r, key, i, words);
  auto* const param = reinterpret_cast<Pack<T, N>*>(r.param + i);
  const auto master = [&] { return reinterpret_cast<Pack<float, N>*>(r.master + i); };
  const auto state = [i](void* base) {
    return reinterpret_cast<Pack<S, N>*>(static_cast<S*>(base) + i);
  };
  const Pack<F, N> grad = *reinterpret_cast<const Pack<F, N>*>(r.grad + i);
  const bool has_first = r.m != nullptr;
  Pack<T, N> p{};
  Pack<float, N> wide{};
  Pack<S, N> m{}, v{};
  if constexpr (kMaster)
    wide = *master();
  else
    p = *param;
  if (has_first) m = *state(r.m);
  if constexpr (Rule::kSecondMoment) v = *state(r.v);
#pragma unroll
  for (int k = 0; k < N; ++k) {
    F value;
    if constexpr (kMaster)
      value = wide.v[k];
    else
      value = to_compute(p.v[k]);
    F m_new = to_compute(m.v[k]), v_new = to_compute(v.v[k]);
    Rule::template element<ThreadMath>(c, has_first, value, grad.v[k], m_new, v_new);
    if constexpr (kRoundsState) {
      m.v[k] = round_stochastically(m_new, words[k] >> 16);
      v.v[k] = round_stochastically(v_new, words[k] >> 16);
    } else {
      m.v[k] = m_new;
      v.v[k] = v_new;
    }
    if constexpr (kMaster) wide.v[k] = value;
    if constexpr (kRoundsParam)
      p.v[k] = round_stochastically(value, words[k] & 0xffffu);
    else
      p.v[k] = static_cast<T>(value);
  }
  if (has_first) *state(r.m) = m;
  if constexpr (Rule::kSecondMoment) *state(r.v) = v;
  if constexpr (kMaster) *master() = wide;
  *param = p;
}

template <class Rule, class T, class S, bool kMaster, int N>
__global__ void __launch_bounds__(kThreads) update_kernel(RuleStep<Rule, T> a) {
  begin_kernel();
  using F = compute_t<T>;
  // Logarithms in float64, once for the block.
  __shared__ typename Rule::template Coefficients<F> shared;
  __shared__ uint64_t stream;
  if (threadIdx.x == 0) {
    const StepScalars scalars = *a.scalars;
    shared = Rule::template coefficients<F>(a.args, scalars);
    stream = rounding_stream(a.range.key, scalars.count);
  }
  const bool skip = a.scalars->skip != 0;
  __syncthreads();
  if (skip) return;
  const auto c = shared;
  const RandomKey key{a.range.key.seed, stream};
  const int64_t packs = a.range.n / N;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t threads = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t p = thread; p < packs; p += threads)
    update_elements<Rule, T, S, kMaster, N>(a.range, key, c, p * N);
  if constexpr (N > 1)
    if (packs * N + thread < a.range.n)
      update_elements<Rule, T, S, kMaster, 1>(a.range, key, c, packs * N + thread);
}

template <class Rule, class T, class S, bool kMaster>
void launch_update(Context& gpu, const RuleStep<Rule, T>& a) {
  using F = compute_t<T>;
  constexpr int kElements = kPack<F>;
  const cpu::UpdateRange<T>& r = a.range;
  const auto aligned = [](const auto* p) {
    return reinterpret_cast<uintptr_t>(p) % alignof(Pack<std::decay_t<decltype(*p)>, kElements>) ==
           0;
  };
  const bool packed = aligned(r.param) && aligned(r.master) && aligned(r.grad) &&
                      aligned(static_cast<const S*>(r.m)) && aligned(static_cast<const S*>(r.v));
  const int64_t blocks = std::min(blocks_for(r.n, int64_t{kThreads} * (packed ? kElements : 1)),
                                  kBlocksAMultiprocessor * gpu.info.multiprocessors);
  const Grid grid{.blocks = {blocks}, .threads = kThreads};
  packed ? launch(gpu, Rule::kOp, update_kernel<Rule, T, S, kMaster, kElements>, grid, a)
         : launch(gpu, Rule::kOp, update_kernel<Rule, T, S, kMaster, 1>, grid, a);
}

template <class Rule, class T, bool kMaster>
void with_state(Context& gpu, const RuleStep<Rule, T>& a) {
  if constexpr (!std::is_same_v<T, double>)
    if (a.range.bf16_state) return launch_update<Rule, T, bf16, kMaster>(gpu, a);
  launch_update<Rule, T, compute_t<T>, kMaster>(gpu, a);
}

}  // namespace

template <class Rule, class T>
void apply_rule(Context& gpu, const RuleStep<Rule, T>& a) {
  if constexpr (sizeof(T) == 2)
    if (a.range.master != nullptr) return with_state<Rule, T, true>(gpu, a);
  with_state<Rule, T, false>(gpu, a);
}

#define TRIREME_INSTANTIATE_FOR(RULE, T) \
  template void apply_rule<RULE, T>(Context&, const RuleStep<RULE, T>&);
#define TRIREME_INSTANTIATE(RULE)       \
  TRIREME_INSTANTIATE_FOR(RULE, double) \
  TRIREME_INSTANTIATE_FOR(RULE, float)  \
  TRIREME_INSTANTIATE_FOR(RULE, bf16)   \
  TRIREME_INSTANTIATE_FOR(RULE, f16)
TRIREME_UPDATE_RULES(TRIREME_INSTANTIATE)

}  // namespace trireme::cuda
