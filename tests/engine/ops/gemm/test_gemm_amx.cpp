// Products by matrix tiles: the blocking (amx_rows.cpu.h) on emulated tiles in memory, which
// compute like the processor's, and on the processor's own where it has them.
#include <gtest/gtest.h>

#include <cstring>

#include "engine/core/amx.h"
#include "engine/core/built_isas.h"
#include "engine/core/cpu.h"
#include "engine/core/error.h"
#include "engine/ops/gemm/amx_rows.cpu.h"
#include "engine/ops/gemm/gemm_amx.cpu.h"
#include "tests/support/compare.h"
#include "tests/support/op_run.h"

namespace trireme::test::test_gemm_amx {
namespace {

// Eight tile registers in memory. A register that was not loaded since the configuration holds NaN,
// so that a product with it is detected.
struct MemoryTiles {
  float sums[4][16][16];
  bf16 operands[4][16][32];
  MemoryTiles() {
    std::memset(static_cast<void*>(sums), 0xff, sizeof sums);
    std::memset(static_cast<void*>(operands), 0xff, sizeof operands);
  }
  template <int t>
  void zero() {
    std::memset(sums[t], 0, sizeof sums[t]);
  }
  template <int t>
  void load(const void* from, int64_t stride) {
    for (int r = 0; r < 16; ++r)
      std::memcpy(static_cast<void*>(operands[t - 4][r]),
                  static_cast<const char*>(from) + r * stride, 64);
  }
  template <int t>
  void store(void* to, int64_t stride) {
    for (int r = 0; r < 16; ++r) std::memcpy(static_cast<char*>(to) + r * stride, sums[t][r], 64);
  }
  template <int c, int a, int b>
  void dot() {
    for (int i = 0; i < 16; ++i)
      for (int j = 0; j < 16; ++j)
        for (int p = 0; p < 32; ++p)
          sums[c][i][j] += static_cast<float>(operands[a - 4][i][p]) *
                           static_cast<float>(operands[b - 4][p / 2][2 * j + p % 2]);
  }
};

struct Case {
  int64_t m, n, k;
  DType out = DType::kBF16;
  bool bias = false, accumulate = false;
  float alpha = 1;
  std::string str() const {
    return concat("m ", m, " n ", n, " k ", k, " ", out, bias ? " bias" : "",
                  accumulate ? " accumulate" : "");
  }
};

// Matrices in the middle of wider ones.
struct Product {
  Case c;  // first: the operands are created from it
  explicit Product(const Case& which)
      : c(which),
        x(DType::kBF16, {c.m, c.k + 3}, normals("x", c.m * (c.k + 3))),
        w(DType::kBF16, {c.n, c.k + 5}, normals("w", c.n * (c.k + 5))),
        y(c.out, {c.m, c.n + 2}, normals("y", c.m * (c.n + 2))),
        bias(c.out, {c.n}, normals("bias", c.n)),
        tiles(DType::kBF16, {cpu::packed_tiles(c.m, c.k)}) {
    product.m = c.m;
    product.n = c.n;
    product.k = c.k;
    product.x = x->as<bf16>();
    product.x_stride = c.k + 3;
    product.w = w->as<bf16>();
    product.w_stride = c.k + 5;
    product.y = y->raw();
    product.y_stride = c.n + 2;
    product.y_float32 = c.out == DType::kF32;
    product.bias = c.bias ? bias->raw() : nullptr;
    product.alpha = c.alpha;
    product.accumulate = c.accumulate;
    product.packed_x = static_cast<float*>(tiles->raw());
  }
  std::vector<double> reference() const {
    const std::vector<double> xs = to_doubles(x), ws = to_doubles(w), before = to_doubles(y),
                              added = to_doubles(bias);
    std::vector<double> want;
    for (int64_t i = 0; i < c.m; ++i)
      for (int64_t j = 0; j < c.n; ++j) {
        double sum = 0;
        for (int64_t p = 0; p < c.k; ++p)
          sum += xs[static_cast<size_t>(i * (c.k + 3) + p)] *
                 ws[static_cast<size_t>(j * (c.k + 5) + p)];
        sum *= static_cast<double>(c.alpha);
        if (c.bias) sum += added[static_cast<size_t>(j)];
        if (c.accumulate) sum += before[static_cast<size_t>(i * (c.n + 2) + j)];
        want.push_back(sum);
      }
    return want;
  }
  bool frame_intact(const std::vector<double>& before) const {
    const std::vector<double> now = to_doubles(y);
    for (size_t i = 0; i < now.size(); ++i)
      if (static_cast<int64_t>(i) % (c.n + 2) >= c.n && now[i] != before[i]) return false;
    return y.guards_intact() && tiles.guards_intact();
  }

  TestTensor x, w, y, bias, tiles;
  cpu::Gemv<bf16> product;
};

template <class Multiply>
void expect_products(const Multiply& multiply) {
  for (const int64_t n : {16, 17, 31, 32, 33, 48, 100})
    for (const int64_t k : {1, 31, 32, 33, 300, 700})
      for (const int64_t m : {1, 9, 16, 17, 32, 33, 50}) {
        const bool odd = (m + n + k) % 2 == 1;
        const Case c{
            m, n, k, odd ? DType::kF32 : DType::kBF16, n % 2 == 0, n % 2 == 1, odd ? 0.5f : 1.0f};
        SCOPED_TRACE(c.str());
        Product p(c);
        const std::vector<double> want = p.reference(), before = to_doubles(p.y);
        multiply(p.product, static_cast<int>(m % 3 + 1));
        EXPECT_EQ(compare(p.y->slice(1, 0, n), want, tolerance(c.out, k)), "");
        EXPECT_TRUE(p.frame_intact(before));
      }
}

TEST(GemmAmx, TilesInMemoryMultiply) {
  expect_products([](const cpu::Gemv<bf16>& a, int threads) {
    cpu::multiply_by_tiles<MemoryTiles>(a, threads);
  });
}

TEST(GemmAmx, ARowHasTheBitsThatItHasAlone) {
  Product all({50, 100, 300});
  cpu::multiply_by_tiles<MemoryTiles>(all.product, 2);
  for (const int64_t row : {0, 15, 16, 31, 32, 49}) {
    Product one({50, 100, 300});
    one.product.m = 1;
    one.product.x += row * one.product.x_stride;
    cpu::multiply_by_tiles<MemoryTiles>(one.product, 1);
    EXPECT_EQ(compare_exact(one.y->slice(0, 0, 1).slice(1, 0, 100),
                            all.y->slice(0, row, row + 1).slice(1, 0, 100)),
              "")
        << row;
  }
}

#if TRIREME_BUILT_AVX512
TEST(GemmAmx, TheProcessorsTilesMultiply) {
  if (best_isa() != Isa::kAvx512 || !may_use_amx_bf16())
    GTEST_SKIP() << "this processor has no AMX tiles of bfloat16";
  expect_products([](const cpu::Gemv<bf16>& a, int threads) { cpu::avx512::gemm_amx(a, threads); });
}
#endif

}  // namespace
}  // namespace trireme::test::test_gemm_amx
