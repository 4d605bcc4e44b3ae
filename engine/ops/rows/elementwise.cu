#include "engine/core/convert_float.h"
#include "engine/ops/backend/elements.cuda.h"
#include "engine/ops/rows/elementwise.kernels.h"

namespace trireme::cuda {
namespace {

template <class T, int N>
struct Add {
  T* y;
  const T *a, *b;
  __device__ void operator()(int64_t item) const {
    auto e = load_pack<T, N>(a, item);
    const auto f = load_pack<T, N>(b, item);
#pragma unroll
    for (int i = 0; i < N; ++i) e.v[i] = static_cast<T>(to_compute(e.v[i]) + to_compute(f.v[i]));
    store_pack<T, N>(y, item, e);
  }
};

template <class T, int N>
struct Scale {
  T* y;
  const T* x;
  compute_t<T> factor;
  __device__ void operator()(int64_t item) const {
    auto e = load_pack<T, N>(x, item);
#pragma unroll
    for (int i = 0; i < N; ++i) e.v[i] = static_cast<T>(to_compute(e.v[i]) * factor);
    store_pack<T, N>(y, item, e);
  }
};

template <class To, class From, int N>
struct Cast {
  To* y;
  const From* x;
  __device__ void operator()(int64_t item) const {
    const auto e = load_pack<From, N>(x, item);
    Pack<To, N> out;
#pragma unroll
    for (int i = 0; i < N; ++i) out.v[i] = convert_float<To>(e.v[i]);
    store_pack<To, N>(y, item, out);
  }
};

// An item is 16 bytes of the wider type, so that neighbouring threads read and write without gaps.
template <class To, class From>
void cast_to(Context& gpu, To* y, const From* x, int64_t n) {
  using Wider = std::conditional_t<(sizeof(To) > sizeof(From)), To, From>;
  const auto run = [&]<int N>() { for_each_item(gpu, "cast", n / N, Cast<To, From, N>{y, x}); };
  with_pack<Wider>(n, run, reinterpret_cast<const Wider*>(y), reinterpret_cast<const Wider*>(x));
}

// Selects one of four words by a number unknown at compile time, without an array in memory.
__device__ uint32_t pick_word(const PhiloxBlock& words, uint64_t k) {
  const uint32_t low = (k & 1) != 0 ? words[1] : words[0];
  const uint32_t high = (k & 1) != 0 ? words[3] : words[2];
  return (k & 2) != 0 ? high : low;
}

// Words of elements first, ..., first + N - 1; N divides `first`.
template <int N>
__device__ Pack<uint32_t, N> philox_words(const RandomKey& key, uint64_t first) {
  Pack<uint32_t, N> out;
  if constexpr (N >= 4) {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
      const PhiloxBlock words = philox(key, first / 4 + static_cast<unsigned>(i / 4));
#pragma unroll
      for (int k = 0; k < 4; ++k) out.v[i + k] = words[static_cast<unsigned>(k)];
    }
  } else {
    const PhiloxBlock words = philox(key, first / 4);
#pragma unroll
    for (int i = 0; i < N; ++i) out.v[i] = pick_word(words, first % 4 + static_cast<unsigned>(i));
  }
  return out;
}

template <class T, int N>
struct Dropout {
  cpu::DropoutArgs<T> a;
  int64_t packs;  // per row
  __device__ void operator()(int64_t item) const {
    using F = compute_t<T>;
    const int64_t row = quotient(item, packs);
    const int64_t column = (item - row * packs) * N;
    const auto words =
        philox_words<N>(a.key, static_cast<uint64_t>(a.rows[row] * a.total + a.first + column));
    auto e = load_pack<T, N>(a.x, item);
    Pack<T, N> other{};
    if (a.residual != nullptr) other = load_pack<T, N>(a.residual, item);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      F y = words.v[i] >> 8 >= a.threshold ? to_compute(e.v[i]) * a.scale : F{0};
      if (a.residual != nullptr) y += to_compute(other.v[i]);
      e.v[i] = static_cast<T>(y);
    }
    store_pack<T, N>(a.y, item, e);
  }
};

template <class T>
struct KeepColumns {
  T* y;
  const int32_t* ranges;
  int64_t columns;
  __device__ void operator()(int64_t item) const {
    const int64_t row = quotient(item, columns);
    const int64_t column = item - row * columns;
    if (column < ranges[2 * row] || column >= ranges[2 * row + 1]) y[item] = T{};
  }
};

}  // namespace

template <class T>
void add(Context& gpu, T* y, const T* a, const T* b, int64_t n) {
  with_pack<T>(
      n,
      [&]<int N>() {
        for_each_item(gpu, "add", n / N, Add<T, N>{y, a, b});
      },
      y, a, b);
}

template <class T>
void scale(Context& gpu, T* y, const T* x, compute_t<T> factor, int64_t n) {
  with_pack<T>(
      n,
      [&]<int N>() {
        for_each_item(gpu, "scale", n / N, Scale<T, N>{y, x, factor});
      },
      y, x);
}

template <class T>
void cast(Context& gpu, void* y, DType to, const T* x, int64_t n) {
  switch (to) {
    case DType::kF64: return cast_to(gpu, static_cast<double*>(y), x, n);
    case DType::kF32: return cast_to(gpu, static_cast<float*>(y), x, n);
    case DType::kBF16: return cast_to(gpu, static_cast<bf16*>(y), x, n);
    case DType::kF16: return cast_to(gpu, static_cast<f16*>(y), x, n);
    default: return;  // checked by the op
  }
}

template <class T>
void keep_columns(Context& gpu, T* y, const int32_t* ranges, int64_t rows, int64_t columns) {
  for_each_item(gpu, "keep_columns", rows * columns, KeepColumns<T>{y, ranges, columns});
}

template <class T>
void dropout(Context& gpu, const cpu::DropoutArgs<T>& a) {
  // A power of two divides the OR of the three exactly if it divides each of them.
  with_pack<T>(
      a.columns | a.first | a.total,
      [&]<int N>() {
        const int64_t packs = a.columns / N;
        for_each_item(gpu, "dropout", a.num_rows * packs, Dropout<T, N>{a, packs});
      },
      a.y, a.x, a.residual);
}

#define TRIREME_INSTANTIATE(T)                                                   \
  template void add<T>(Context&, T*, const T*, const T*, int64_t);               \
  template void scale<T>(Context&, T*, const T*, compute_t<T>, int64_t);         \
  template void cast<T>(Context&, void*, DType, const T*, int64_t);              \
  template void keep_columns<T>(Context&, T*, const int32_t*, int64_t, int64_t); \
  template void dropout<T>(Context&, const cpu::DropoutArgs<T>&);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cuda
