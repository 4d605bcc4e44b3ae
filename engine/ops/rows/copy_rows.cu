#include "engine/ops/backend/elements.cuda.h"
#include "engine/ops/rows/copy_rows.kernels.h"

namespace trireme::cuda {
namespace {

// Unit: type that a thread moves; all addresses and strides are multiples of its size.
template <class Unit>
struct MoveRows {
  CopyRows a;
  int64_t units;  // per row
  __device__ void operator()(int64_t item) const {
    const int64_t i = quotient(item, units), u = item - i * units;
    const int64_t to = a.y_rows != nullptr ? a.y_rows[i] : i;
    const int64_t from = a.x_rows != nullptr ? a.x_rows[i] : i;
    if (to < 0 || to >= a.y_limit || from < 0 || from >= a.x_limit) return;
    reinterpret_cast<Unit*>(a.y + to * a.y_stride)[u] =
        reinterpret_cast<const Unit*>(a.x + from * a.x_stride)[u];
  }
};

template <class Unit>
void move_rows(Context& gpu, const CopyRows& a) {
  const int64_t units = a.bytes / static_cast<int64_t>(sizeof(Unit));
  for_each_item(gpu, "copy_rows", a.rows * units, MoveRows<Unit>{a, units});
}

template <class T, int N>
struct NarrowRows {
  cpu::ConvertRows<T> a;
  int64_t packs;  // per row
  __device__ void operator()(int64_t item) const {
    const int64_t row = quotient(item, packs), p = item - row * packs;
    const auto e = load_pack<float, N>(a.wide, item);
    Pack<T, N> out;
#pragma unroll
    for (int i = 0; i < N; ++i) out.v[i] = static_cast<T>(e.v[i]);
    store_pack<T, N>(a.narrow + row * a.narrow_stride, p, out);
  }
};

}  // namespace

void copy_rows(Context& gpu, const CopyRows& a) {
  const auto bits = reinterpret_cast<uintptr_t>(a.y) | reinterpret_cast<uintptr_t>(a.x) |
                    static_cast<uintptr_t>(a.bytes | a.y_stride | a.x_stride);
  if (bits % 16 == 0) return move_rows<Pack<uint32_t, 4>>(gpu, a);
  if (bits % 8 == 0) return move_rows<Pack<uint32_t, 2>>(gpu, a);
  if (bits % 4 == 0) return move_rows<uint32_t>(gpu, a);
  if (bits % 2 == 0) return move_rows<uint16_t>(gpu, a);
  move_rows<uint8_t>(gpu, a);
}

template <class T>
void narrow_rows(Context& gpu, const cpu::ConvertRows<T>& a) {
  with_pack<float>(
      a.columns | a.narrow_stride,
      [&]<int N>() {
        const int64_t packs = a.columns / N;
        for_each_item(gpu, "round_rows", a.rows * packs, NarrowRows<T, N>{a, packs});
      },
      a.wide, reinterpret_cast<const float*>(a.narrow));
}

template void narrow_rows<bf16>(Context&, const cpu::ConvertRows<bf16>&);
template void narrow_rows<f16>(Context&, const cpu::ConvertRows<f16>&);

}  // namespace trireme::cuda
