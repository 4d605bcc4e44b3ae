#include "engine/ops/cpu/optimizer_step.h"

#include "engine/core/parallel_for.h"
#include "engine/ops/cpu/philox.h"
#include "engine/ops/cpu/vector_loop.h"

namespace trireme::cpu::TRIREME_ISA {
namespace {

constexpr int64_t kGrain = 1 << 14;       // elements worth a thread
constexpr int64_t kPiece = kPhiloxBatch;  // elements computed before they are written back

// bf16 with the bits below it replaced by chance: rounds up with the probability of their share.
[[gnu::always_inline]] inline bf16 round_stochastic(float x, uint32_t word) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
  bf16 out(x);
  const uint32_t rounded = (bits + (word & 0xffffu)) >> 16;
  out.bits = finite ? static_cast<uint16_t>(rounded) : out.bits;
  return out;
}

// Writes the new values of elements [begin, begin + count) of the range.
template <class T>
[[gnu::always_inline]] inline void write_back(const UpdatedParams<T>& p, int64_t begin,
                                              int64_t count, const compute_t<T>* values) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (p.stochastic) {
      uint32_t storage[3 * kPhiloxBatch];
      const uint32_t* words =
          philox_words(p.rounding, static_cast<uint64_t>(p.element0 + begin), count, storage);
#pragma omp simd
      for (int64_t i = 0; i < count; ++i)
        p.param[begin + i] = round_stochastic(values[i], words[i]);
      return;
    }
  }
  if (p.master != nullptr) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) p.master[begin + i] = values[i];
  }
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) p.param[begin + i] = static_cast<T>(values[i]);
}

template <class T>
[[gnu::always_inline]] inline void read_params(const UpdatedParams<T>& p, int64_t begin,
                                               int64_t count, compute_t<T>* values) {
  using C = compute_t<T>;
  if (p.master != nullptr) {
    for (int64_t i = 0; i < count; ++i) values[i] = p.master[begin + i];
    return;
  }
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) values[i] = static_cast<C>(p.param[begin + i]);
}

template <class T, class State>
void adamw_range(const AdamWUpdate<T>& u, int64_t begin, int64_t end) {
  using C = compute_t<T>;
  State* m = static_cast<State*>(u.m);
  State* v = static_cast<State*>(u.v);
  const C* grad = u.p.grad;
  const C one_beta1 = C{1} - u.beta1, one_beta2 = C{1} - u.beta2;
  const C l2 = u.decoupled ? C{0} : u.weight_decay, decay = u.decoupled ? u.weight_decay : C{0};
  const AdamWUpdate<T> a = u;  // a copy the stores below cannot change
  C values[kPiece];
  for (int64_t at = begin; at < end; at += kPiece) {
    const int64_t count = end - at < kPiece ? end - at : kPiece;
    read_params(u.p, at, count, values);
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      const C p = values[i];
      const C g = grad[at + i] * a.grad_multiplier + l2 * p;
      const C first = a.beta1 * static_cast<C>(m[at + i]) + one_beta1 * g;
      const C second = a.beta2 * static_cast<C>(v[at + i]) + one_beta2 * g * g;
      m[at + i] = static_cast<State>(first);
      v[at + i] = static_cast<State>(second);
      const C denominator = square_root(second * a.v_correction) + a.eps;
      values[i] = p - a.lr * (first * a.m_correction / denominator + decay * p);
    }
    write_back(u.p, at, count, values);
  }
}

template <class T, class State>
void sgd_range(const SgdUpdate<T>& u, int64_t begin, int64_t end) {
  using C = compute_t<T>;
  State* m = static_cast<State*>(u.m);
  const C* grad = u.p.grad;
  const SgdUpdate<T> a = u;
  const C kept = a.first ? C{0} : a.momentum;
  C values[kPiece];
  for (int64_t at = begin; at < end; at += kPiece) {
    const int64_t count = end - at < kPiece ? end - at : kPiece;
    read_params(u.p, at, count, values);
    if (m == nullptr) {
#pragma omp simd
      for (int64_t i = 0; i < count; ++i)
        values[i] -= a.lr * (grad[at + i] * a.grad_multiplier + a.weight_decay * values[i]);
    } else {
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) {
        const C d = grad[at + i] * a.grad_multiplier + a.weight_decay * values[i];
        const C velocity = kept * static_cast<C>(m[at + i]) + d;
        m[at + i] = static_cast<State>(velocity);
        values[i] -= a.lr * (a.nesterov ? d + a.momentum * velocity : velocity);
      }
    }
    write_back(u.p, at, count, values);
  }
}

}  // namespace

template <class T>
void adamw_step(const AdamWUpdate<T>& u, int threads) {
  parallel_for(threads, u.p.n, kGrain, [&u](int64_t begin, int64_t end) {
    if constexpr (std::is_same_v<T, double>)
      adamw_range<T, double>(u, begin, end);
    else if (u.bf16_state)
      adamw_range<T, bf16>(u, begin, end);
    else
      adamw_range<T, float>(u, begin, end);
  });
}

template <class T>
void sgd_step(const SgdUpdate<T>& u, int threads) {
  parallel_for(threads, u.p.n, kGrain, [&u](int64_t begin, int64_t end) {
    if constexpr (std::is_same_v<T, double>)
      sgd_range<T, double>(u, begin, end);
    else if (u.bf16_state)
      sgd_range<T, bf16>(u, begin, end);
    else
      sgd_range<T, float>(u, begin, end);
  });
}

template <class T>
void sum_of_squares(double* partial, const T* x, int64_t n, int threads) {
  const int64_t blocks = (n + kSquaresBlock - 1) / kSquaresBlock;
  parallel_for(threads, blocks, 1, [=](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t last = (b + 1) * kSquaresBlock < n ? (b + 1) * kSquaresBlock : n;
      double sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t i = b * kSquaresBlock; i < last; ++i) {
        const double value = static_cast<double>(static_cast<compute_t<T>>(x[i]));
        sum += value * value;
      }
      partial[b] = sum;
    }
  });
}

#define TRIREME_INSTANTIATE(T)                             \
  template void adamw_step<T>(const AdamWUpdate<T>&, int); \
  template void sgd_step<T>(const SgdUpdate<T>&, int);     \
  template void sum_of_squares<T>(double*, const T*, int64_t, int);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cpu::TRIREME_ISA
