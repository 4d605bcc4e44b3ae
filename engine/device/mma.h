// Tensor-core matrix products of 16-bit floats or int8 by one warp: each of the 32 lanes has a
// fragment of every matrix in its registers (PTX ISA, "Warp-level matrix instructions"). All lanes
// must call them. For CUDA sources only. Under TRIREME_EMULATED the lanes exchange their values and
// compute the same product; sums of floats may be rounded differently.
//
// With g = lane / 4 and t = lane % 4, and each register two neighbouring elements, the lower half
// first:
//   a  (16 x 16)  a[0]: (g, 2t)  a[1]: (g + 8, 2t)  a[2]: (g, 2t + 8)  a[3]: (g + 8, 2t + 8)
//   b  (16 x 8)   b[0]: rows 2t and 2t + 1 of column g  b[1]: rows 2t + 8 and 2t + 9
//   d  (16 x 8)   d[0], d[1]: (g, 2t) and (g, 2t + 1)  d[2], d[3]: the same in row g + 8
// For int8 a register is four neighbouring elements, with the same d in int32:
//   a  (16 x 32)  a[0]: (g, 4t)  a[1]: (g + 8, 4t)  a[2]: (g, 4t + 16)  a[3]: (g + 8, 4t + 16)
//   b  (32 x 8)   b[0]: rows 4t .. 4t + 3 of column g  b[1]: rows 4t + 16 .. 4t + 19
#pragma once

#include "engine/core/float16.h"
#include "engine/device/launch.h"

namespace trireme::cuda {

// Two elements packed as in a fragment register.
template <class T>
__device__ uint32_t pack_two(float low, float high) {
  return static_cast<uint32_t>(T(low).bits) | static_cast<uint32_t>(T(high).bits) << 16;
}

#ifdef TRIREME_EMULATED

namespace emulated {

// Values of all lanes of a warp: two registers per lane.
struct Lanes {
  uint64_t value[32];
  Lanes(uint64_t mine) {  // NOLINT: implicit
    const uint64_t* all =
        emulator::detail::exchange(emulator::detail::Collective::kShuffle, 0xffffffffu, mine);
    for (int i = 0; i < 32; ++i) value[i] = all[i];
  }
  Lanes(uint32_t first, uint32_t second) : Lanes(first | uint64_t{second} << 32) {}
  // Element `half` of register `index` of a lane.
  template <class T>
  float element(int lane, int index, int half) const {
    T x;
    x.bits = static_cast<uint16_t>(value[lane] >> (32 * index + 16 * half));
    return static_cast<float>(x);
  }
};

}  // namespace emulated

// d += a b for T = bf16 or f16; accumulates in float32.
template <class T>
__device__ void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  const emulated::Lanes left(a[0], a[1]), right(a[2], a[3]), columns(b[0], b[1]);
  for (int i = 0; i < 4; ++i) {
    const int upper_row = i / 2, column = 2 * t + i % 2;
    for (int k = 0; k < 16; ++k) {
      const int part = k % 8 / 2, half = k % 2;
      const float x = (k < 8 ? left : right).template element<T>(4 * g + part, upper_row, half);
      d[i] += x * columns.template element<T>(4 * column + part, k / 8, half);
    }
  }
}

// d += a b in int32.
__device__ inline void mma_m16n8k32(int32_t (&d)[4], const uint32_t (&a)[4],
                                    const uint32_t (&b)[2]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  const emulated::Lanes left(a[0], a[1]), right(a[2], a[3]), columns(b[0], b[1]);
  const auto element = [](uint64_t two, int index, int i) {
    return static_cast<int32_t>(static_cast<int8_t>(two >> (32 * index + 8 * i) & 0xff));
  };
  for (int i = 0; i < 4; ++i) {
    const int upper_row = i / 2, column = 2 * t + i % 2;
    for (int k = 0; k < 32; ++k) {
      const int part = k % 16 / 4;
      d[i] += element((k < 16 ? left : right).value[4 * g + part], upper_row, k % 4) *
              element(columns.value[4 * column + part], k / 16, k % 4);
    }
  }
}

// Loads four 8 x 8 matrices of 16-bit elements from shared memory. Lane 8 m + r passes the address
// of row r of matrix m: 16 bytes, 16-byte aligned. Register m receives the elements (g, 2t) and (g,
// 2t + 1) of matrix m, of its transpose with kTransposed.
template <bool kTransposed>
__device__ void load_matrices(uint32_t (&to)[4], const void* row) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  const emulated::Lanes rows(reinterpret_cast<uintptr_t>(row));
  for (int m = 0; m < 4; ++m) {
    to[m] = 0;
    for (int i = 0; i < 2; ++i) {
      const int r = kTransposed ? 2 * t + i : g, c = kTransposed ? g : 2 * t + i;
      const auto* from = reinterpret_cast<const uint16_t*>(rows.value[8 * m + r]);
      to[m] |= static_cast<uint32_t>(from[c]) << (16 * i);
    }
  }
}

// Copies 16 bytes from global to shared memory, both 16-byte aligned, without passing through
// registers. Stores zeros, and does not read `global`, if not `valid`. Visible after wait_copies
// and a barrier.
__device__ inline void copy_async_16(void* shared, const void* global, bool valid) {
  struct Bytes {
    uint64_t v[2];
  };
  *static_cast<Bytes*>(shared) = valid ? *static_cast<const Bytes*>(global) : Bytes{};
}
// Ends a group of copies.
__device__ inline void commit_copies() {}
// Waits for the thread's own groups of copies except the last kOpen groups.
template <int kOpen>
__device__ void wait_copies() {}

#else

template <class T>
__device__ void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
template <>
__device__ inline void mma_m16n8k16<bf16>(float (&d)[4], const uint32_t (&a)[4],
                                          const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
template <>
__device__ inline void mma_m16n8k16<f16>(float (&d)[4], const uint32_t (&a)[4],
                                         const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ inline void mma_m16n8k32(int32_t (&d)[4], const uint32_t (&a)[4],
                                    const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ inline uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

template <bool kTransposed>
__device__ void load_matrices(uint32_t (&to)[4], const void* row) {
  if constexpr (kTransposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
}

__device__ inline void copy_async_16(void* shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
               "l"(global), "r"(valid ? 16 : 0)
               : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kOpen>
__device__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kOpen) : "memory");
}

#endif

}  // namespace trireme::cuda
