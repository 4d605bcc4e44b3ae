// The emulated warp products of engine/device/mma.h against plain ones: the fragments are unpacked
// here by the formulas of the PTX manual, element by element.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "engine/core/random.h"
#include "engine/device/mma.h"
#include "tests/emulator/emulator.h"

namespace trireme::cuda {
namespace {

// Position of element i of a lane's fragment, by the manual.
struct MatrixIndex {
  int row, column;
};
MatrixIndex a_index(int lane, int i) {
  const int group = lane >> 2, in_group = lane % 4;
  const bool upper = (0 <= i && i < 2) || (4 <= i && i < 6);
  return {upper ? group : group + 8, in_group * 2 + (i & 1) + (i < 4 ? 0 : 8)};
}
MatrixIndex b_index(int lane, int i) {
  return {lane % 4 * 2 + (i & 1) + (i < 2 ? 0 : 8), lane >> 2};
}
MatrixIndex d_index(int lane, int i) {
  return {(lane >> 2) + (i < 2 ? 0 : 8), lane % 4 * 2 + (i & 1)};
}

template <class T>
struct Fragments {
  uint32_t a[32][4], b[32][2];
  float d[32][4];
};

template <class T>
void product_kernel(Fragments<T>* f) {
  const auto lane = threadIdx.x;
  mma_m16n8k16<T>(f->d[lane], f->a[lane], f->b[lane]);
}

float value(uint64_t stream, int i) {
  const uint32_t word = philox_word({1, stream}, static_cast<uint64_t>(i));
  return uniform_from_word(word) * 2.0f - 1.0f;
}

template <class T>
uint32_t pair(float low, float high) {
  return static_cast<uint32_t>(T(low).bits) | static_cast<uint32_t>(T(high).bits) << 16;
}

// Device memory that the host fills and reads while no work is queued.
template <class T>
class OnDevice {
 public:
  OnDevice() { EXPECT_EQ(cudaMalloc(&data_, sizeof(T)), cudaSuccess); }
  ~OnDevice() { (void)cudaFree(data_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  T* get() const { return static_cast<T*>(data_); }

 private:
  void* data_ = nullptr;
};

template <class Body>
void run_warp(Body body, size_t shared) {
  ASSERT_EQ(emulator::launch(nullptr, "mma", dim3(1), dim3(32), shared, body), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

template <class T>
void check_product() {
  float a[16][16], b[16][8], d[16][8];
  for (int r = 0; r < 16; ++r) {
    for (int k = 0; k < 16; ++k) a[r][k] = static_cast<float>(T(value(1, r * 16 + k)));
    for (int c = 0; c < 8; ++c) b[r][c] = static_cast<float>(T(value(2, r * 8 + c)));
    for (int c = 0; c < 8; ++c) d[r][c] = value(3, r * 8 + c);
  }
  const OnDevice<Fragments<T>> memory;
  {
    const emulator::ScopedDeviceAccess access;
    const auto at = [](auto& matrix, MatrixIndex p) { return matrix[p.row][p.column]; };
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 8; i += 2)
        memory.get()->a[lane][i / 2] =
            pair<T>(at(a, a_index(lane, i)), at(a, a_index(lane, i + 1)));
      for (int i = 0; i < 4; i += 2)
        memory.get()->b[lane][i / 2] =
            pair<T>(at(b, b_index(lane, i)), at(b, b_index(lane, i + 1)));
      for (int i = 0; i < 4; ++i) memory.get()->d[lane][i] = at(d, d_index(lane, i));
    }
  }
  Fragments<T>* const device = memory.get();
  run_warp([device] { product_kernel<T>(device); }, 0);
  const emulator::ScopedDeviceAccess access;
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i) {
      const MatrixIndex p = d_index(lane, i);
      double want = d[p.row][p.column];
      for (int k = 0; k < 16; ++k) want += static_cast<double>(a[p.row][k]) * b[k][p.column];
      EXPECT_NEAR(device->d[lane][i], want, 1e-5) << "lane " << lane << ", element " << i;
    }
}

TEST(Mma, MultipliesFragmentsLaidOutAsTheManualSays) {
  check_product<bf16>();
  check_product<f16>();
}

// Element i of a lane's fragments of int8.
MatrixIndex a_byte(int lane, int i) {
  const bool upper = (0 <= i && i < 4) || (8 <= i && i < 12);
  return {upper ? lane >> 2 : (lane >> 2) + 8, lane % 4 * 4 + (i & 3) + (i < 8 ? 0 : 16)};
}
MatrixIndex b_byte(int lane, int i) {
  return {lane % 4 * 4 + (i & 3) + (i < 4 ? 0 : 16), lane >> 2};
}

struct IntegerFragments {
  uint32_t a[32][4], b[32][2];
  int32_t d[32][4];
};
void integer_kernel(IntegerFragments* f) {
  const auto lane = threadIdx.x;
  mma_m16n8k32(f->d[lane], f->a[lane], f->b[lane]);
}

TEST(Mma, MultipliesIntegersLaidOutAsTheManualSays) {
  const auto integer = [](uint64_t stream, int i) {
    return static_cast<int>(philox_word({1, stream}, static_cast<uint64_t>(i)) % 256) - 128;
  };
  const auto a = [&](MatrixIndex p) { return integer(4, p.row * 32 + p.column); };
  const auto b = [&](MatrixIndex p) { return integer(5, p.row * 8 + p.column); };
  const auto byte = [](int x, int i) {
    return (static_cast<uint32_t>(x) & 0xffu) << (8 * (i % 4));
  };
  const OnDevice<IntegerFragments> memory;
  IntegerFragments* const device = memory.get();
  {
    const emulator::ScopedDeviceAccess access;
    *device = {};
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 16; ++i) device->a[lane][i / 4] |= byte(a(a_byte(lane, i)), i);
      for (int i = 0; i < 8; ++i) device->b[lane][i / 4] |= byte(b(b_byte(lane, i)), i);
      for (int i = 0; i < 4; ++i) device->d[lane][i] = 1000 * lane + i;
    }
  }
  run_warp([device] { integer_kernel(device); }, 0);
  const emulator::ScopedDeviceAccess access;
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i) {
      const MatrixIndex p = d_index(lane, i);
      int want = 1000 * lane + i;
      for (int k = 0; k < 32; ++k) want += a({p.row, k}) * b({k, p.column});
      EXPECT_EQ(device->d[lane][i], want) << "lane " << lane << ", element " << i;
    }
}

struct Loaded {
  uint32_t plain[32][4], transposed[32][4];
};

// The four matrices are the quarters of one 16 x 16 tile, with a stride of 24.
void load_kernel(Loaded* to) {
  const auto lane = static_cast<int>(threadIdx.x);
  auto* const tile = static_cast<uint16_t*>(emulator::dynamic_shared());
  for (int i = lane; i < 16 * 24; i += 32) tile[i] = static_cast<uint16_t>(i);
  __syncthreads();
  const int matrix = lane / 8, row = lane % 8 + matrix % 2 * 8, column = matrix / 2 * 8;
  load_matrices<false>(to->plain[lane], tile + row * 24 + column);
  load_matrices<true>(to->transposed[lane], tile + row * 24 + column);
}

TEST(Mma, LoadsMatricesAsTheManualSays) {
  const OnDevice<Loaded> memory;
  Loaded* const device = memory.get();
  run_warp([device] { load_kernel(device); }, 16 * 24 * sizeof(uint16_t));
  const emulator::ScopedDeviceAccess access;
  for (int lane = 0; lane < 32; ++lane)
    for (int m = 0; m < 4; ++m) {
      const auto element = [&](int r, int c) {
        return static_cast<uint32_t>((r + m % 2 * 8) * 24 + c + m / 2 * 8);
      };
      const int row = lane / 4, column = lane % 4 * 2;
      EXPECT_EQ(device->plain[lane][m], element(row, column) | element(row, column + 1) << 16);
      EXPECT_EQ(device->transposed[lane][m], element(column, row) | element(column + 1, row) << 16);
    }
}

}  // namespace
}  // namespace trireme::cuda
