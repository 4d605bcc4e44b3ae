#include <limits>

#include "engine/ops/attention/rotary.kernels.h"
#include "engine/ops/backend/elements.cuda.h"

namespace trireme::cuda {
namespace {

// Item of (rows, heads, packs of half a head): N elements and the N with which they are rotated.
template <class T, int N>
struct Rotate {
  cpu::Rotary<T> a;
  int64_t packs;  // in half a head
  __device__ void operator()(int64_t item) const {
    using F = compute_t<T>;
    const int64_t half = a.width / 2;
    const int64_t vector = quotient(item, packs), p = item - vector * packs;
    const int64_t row = quotient(vector, a.heads), head = vector - row * a.heads;
    T* const x = a.x + row * a.row_stride + head * a.head_stride;
    auto first = load_pack<T, N>(x, p), second = load_pack<T, N>(x + half, p);
    const int64_t position = a.positions[row];
    Pack<F, N> cosine, sine;
    if (position >= 0 && position < a.entries) {
      const F* const table = a.cos_sin + position * a.width;
      cosine = load_pack<F, N>(table, p);
      sine = load_pack<F, N>(table + half, p);
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) cosine.v[i] = sine.v[i] = std::numeric_limits<F>::quiet_NaN();
    }
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const F u = to_compute(first.v[i]), v = to_compute(second.v[i]);
      const F c = cosine.v[i], s = sine.v[i] * a.direction;
      first.v[i] = static_cast<T>(u * c - v * s);
      second.v[i] = static_cast<T>(v * c + u * s);
    }
    store_pack<T, N>(x, p, first);
    store_pack<T, N>(x + half, p, second);
  }
};

// Item of (rows, heads, pairs): neighbouring elements, neighbouring threads.
template <class T>
struct RotateNeighbours {
  cpu::Rotary<T> a;
  __device__ void operator()(int64_t item) const {
    using F = compute_t<T>;
    const int64_t half = a.width / 2;
    const int64_t vector = quotient(item, half), i = item - vector * half;
    const int64_t row = quotient(vector, a.heads), head = vector - row * a.heads;
    T* const x = a.x + row * a.row_stride + head * a.head_stride + 2 * i;
    const int64_t position = a.positions[row];
    F c = std::numeric_limits<F>::quiet_NaN(), s = c;
    if (position >= 0 && position < a.entries) {
      const F* const table = a.cos_sin + position * a.width;
      c = table[i];
      s = table[half + i] * a.direction;
    }
    const F u = to_compute(x[0]), v = to_compute(x[1]);
    x[0] = static_cast<T>(u * c - v * s);
    x[1] = static_cast<T>(v * c + u * s);
  }
};

}  // namespace

template <class T>
void rotary(Context& gpu, const cpu::Rotary<T>& a) {
  const int64_t half = a.width / 2;
  if (a.interleaved) {
    for_each_item(gpu, "rotary", a.rows * a.heads * half, RotateNeighbours<T>{a});
    return;
  }
  // A power of two divides the OR of these exactly if it divides each of them.
  with_pack<T>(
      half | a.row_stride | a.head_stride,
      [&]<int N>() {
        const int64_t packs = half / N;
        for_each_item(gpu, "rotary", a.rows * a.heads * packs, Rotate<T, N>{a, packs});
      },
      a.x, reinterpret_cast<const T*>(a.cos_sin));
}

template void rotary<double>(Context&, const cpu::Rotary<double>&);
template void rotary<float>(Context&, const cpu::Rotary<float>&);
template void rotary<bf16>(Context&, const cpu::Rotary<bf16>&);
template void rotary<f16>(Context&, const cpu::Rotary<f16>&);

}  // namespace trireme::cuda
