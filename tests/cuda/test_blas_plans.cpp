// A product is planned once for its shape and its operands' alignment, not once per call.
#include <gtest/gtest.h>

#include "engine/ops/gemm/gemm.cuda.h"
#include "engine/ops/gemm/gemm.h"
#include "engine/ops/gemm/gemm_problem.h"
#include "engine/ops/gemm/skinny_gemm.cuda.h"
#include "engine/ops/quantized/float8_gemm.h"
#include "engine/ops/rows/fill_normal.h"

namespace trireme::test {
namespace {

constexpr int64_t kRows = cuda::kMaxSkinnyRows + 8;

struct Products {
  std::unique_ptr<cuda::Context> gpu = cuda::open(0);
  Ctx ctx{1, "test", gpu.get()};
  Buffer memory{"operands", 1 << 16, Memory::kDevice};

  Tensor matrix(int64_t slot, int64_t rows, int64_t columns, int64_t byte_offset = 0) const {
    return memory.tensor(DType::kBF16, {rows, columns}, slot * 8192 + byte_offset);
  }
  // Number of plans created by c (m, 16) = a (m, 24) b^T.
  int64_t made_by(int64_t m, const GemmArgs& args = {}, int64_t byte_offset = 0) {
    const int64_t before = cuda::blas_plans(*gpu);
    gemm(ctx, matrix(0, m, 16), matrix(1, m, 24, byte_offset), Transpose::kNo, matrix(2, 16, 24),
         Transpose::kYes, args);
    cuda::synchronize(*gpu, gpu->main);
    return cuda::blas_plans(*gpu) - before;
  }
};

TEST(BlasPlans, AreMadeOncePerShape) {
  Products p;
  EXPECT_EQ(p.made_by(kRows), 1);
  EXPECT_EQ(p.made_by(kRows), 0);
  EXPECT_EQ(p.made_by(kRows + 1), 1);
  EXPECT_EQ(p.made_by(kRows, {.accumulate = true}), 1);
  EXPECT_EQ(p.made_by(kRows, {.bias = p.memory.tensor(DType::kBF16, {16}, 3 * 8192)}), 1);
  EXPECT_EQ(p.made_by(kRows), 0);
}

TEST(BlasPlans, ServeEveryAlpha) {
  Products p;
  EXPECT_EQ(p.made_by(kRows), 1);
  EXPECT_EQ(p.made_by(kRows, {.alpha = 0.5f}), 0);
}

TEST(BlasPlans, DependOnTheAlignmentOfOperands) {
  Products p;
  EXPECT_EQ(p.made_by(kRows), 1);
  EXPECT_EQ(p.made_by(kRows, {}, 2), 1);
  EXPECT_EQ(p.made_by(kRows, {}, 6), 0);  // not better aligned than 2
  EXPECT_EQ(p.made_by(kRows, {}, 1024), 0);
}

TEST(BlasPlans, OfVaryingRowsServeARange) {
  Products p;
  p.gpu->autotune = true;
  EXPECT_EQ(p.made_by(33, {.varying_rows = true}), 1);
  for (const int64_t m : {34, 35, 36}) EXPECT_EQ(p.made_by(m, {.varying_rows = true}), 0) << m;
  EXPECT_EQ(p.made_by(32, {.varying_rows = true}), 1);
  EXPECT_EQ(p.made_by(37, {.varying_rows = true}), 1);
  EXPECT_EQ(p.made_by(33), 1);
  // Rows start at any address, which determines the alignment.
  EXPECT_EQ(p.made_by(40, {.varying_rows = true}, 48), 0);
  int64_t made = 0;
  for (int64_t m = 1; m <= 160; ++m) made += p.made_by(m, {.varying_rows = true});
  EXPECT_LT(made, 48);
}

// Large 16-bit products with sides that are not a multiple of 8 are split.
TEST(BlasPlans, OfOddColumnsAndTermsAreMadeInParts) {
  Products p;
  Buffer memory("operands", int64_t{4} << 20, Memory::kDevice);
  const auto made = [&](int64_t n, int64_t k, DType in, GemmProblem g = {}) {
    const int64_t before = cuda::blas_plans(*p.gpu);
    g.m = kRows;
    g.n = n;
    g.k = k;
    g.lda = g.transpose_a ? kRows : k;
    g.ldb = g.transpose_b ? k : n;
    g.ldc = n;
    g.in = in;
    g.out = DType::kF32;
    std::byte* const at = memory.data();
    cuda::gemm(*p.gpu, g, {.c = at, .a = at + (1 << 17), .b = at + (1 << 18)});
    return cuda::blas_plans(*p.gpu) - before;
  };
  const GemmProblem forward{.transpose_b = true}, to_weight{.transpose_a = true};
  EXPECT_EQ(made(1101, 16, DType::kBF16, forward), 2);
  EXPECT_EQ(made(16, 1101, DType::kF16, forward), 2);
  EXPECT_EQ(made(1037, 1101, DType::kBF16, forward), 4);
  EXPECT_EQ(made(16, 1101, DType::kBF16, to_weight), 1);  // no operand has contiguous terms
  EXPECT_EQ(made(1104, 1096, DType::kBF16, forward), 1);
  EXPECT_EQ(made(1023, 1021, DType::kBF16, forward), 1);
  EXPECT_EQ(made(1101, 16, DType::kF32, forward), 1);
  EXPECT_EQ(made(16, 1101, DType::kBF16, {.transpose_b = true, .varying_rows = true}), 2);
}

// Products with few 16-bit rows use no plan, and a row's bits do not depend on the other rows.
TEST(SkinnyGemm, ARowHasTheSameBitsBesideOthers) {
  Products p;
  const int64_t count = p.memory.bytes() / 2;
  fill_normal(p.ctx, p.memory.tensor(DType::kBF16, {count}), RandomKey{3, 1}, 1.0,
              {.width = count, .stride = count});
  const auto first_row = [&](int64_t m) {
    EXPECT_EQ(p.made_by(m), 0) << m;
    std::vector<std::byte> row(16 * 2);
    cuda::download(*p.gpu, row.data(), p.memory.data(), std::ssize(row));
    return row;
  };
  const std::vector<std::byte> alone = first_row(1);
  for (int64_t m = 2; m <= cuda::kMaxSkinnyRows; ++m) EXPECT_EQ(first_row(m), alone) << m;
  EXPECT_EQ(p.made_by(cuda::kMaxSkinnyRows + 1), 1);
  EXPECT_EQ(p.made_by(1, {}, 2), 1);  // rows start between two packs
}

// The result does not depend on which product of the range was planned first.
TEST(BlasPlans, OfVaryingRowsMultiplyAsThoseOfTheirOwn) {
  const auto product = [](const std::vector<int64_t>& rows, bool varying) {
    Products p;
    cuda::fill_bytes(*p.gpu, p.gpu->main, p.memory.data(), 0x3f, p.memory.bytes());
    for (const int64_t m : rows) p.made_by(m, {.varying_rows = varying});
    std::vector<std::byte> c(40 * 16 * 2);
    cuda::download(*p.gpu, c.data(), p.memory.data(), std::ssize(c));
    return c;
  };
  EXPECT_EQ(product({34}, true), product({34}, false));
  EXPECT_EQ(product({33, 36, 34}, true), product({36}, false));
}

// With thousands of shapes, the plans in use are kept.
TEST(BlasPlans, AreForgottenByTheirLastUse) {
  Products p;
  EXPECT_EQ(p.made_by(kRows), 1);
  for (int64_t n = 0; n < 5000; ++n) {
    const GemmProblem g{.m = 1,
                        .n = 1,
                        .k = 1,
                        .lda = 1,
                        .ldb = 1,
                        .ldc = 100000 + n,
                        .in = DType::kF32,
                        .out = DType::kF32};
    std::byte* const at = p.memory.data();
    cuda::gemm(*p.gpu, g, {.c = at, .a = at + 256, .b = at + 512});
    if (n % 1000 == 0) {
      EXPECT_EQ(p.made_by(kRows), 0) << n;
      cuda::synchronize(*p.gpu, p.gpu->main);
    }
  }
  EXPECT_EQ(p.made_by(kRows), 0);
}

// Result of adding a product to the previous content, which must happen once, however often the
// product is timed.
std::vector<std::byte> sum_with(bool autotune) {
  Products p;
  p.gpu->autotune = autotune;
  constexpr int kBytes = 0x3f;  // 0.75 in every element
  cuda::fill_bytes(*p.gpu, p.gpu->main, p.memory.data(), kBytes, p.memory.bytes());
  EXPECT_EQ(p.made_by(kRows, {.accumulate = true}), 1);
  EXPECT_EQ(p.made_by(kRows, {.accumulate = true}), 0);
  std::vector<std::byte> c(8 * 16 * 2);
  cuda::download(*p.gpu, c.data(), p.memory.data(), std::ssize(c));
  EXPECT_NE(c.front(), std::byte{kBytes});
  return c;
}

// Stored algorithms are used and not chosen again.
TEST(BlasPlans, TakeTheAlgorithmsThatAreKept) {
  Products first;
  first.gpu->autotune = true;
  EXPECT_EQ(cuda::kept_algorithms(*first.gpu), nullptr);
  cuda::keep_algorithms(*first.gpu, cuda::algorithms_of(*first.gpu));
  first.made_by(kRows);
  first.made_by(kRows, {.bias = first.memory.tensor(DType::kBF16, {16}, 3 * 8192)});
  first.made_by(33, {.varying_rows = true});  // never timed, so not stored
  GemmAlgorithms kept = *cuda::kept_algorithms(*first.gpu);
  ASSERT_EQ(kept.chosen.size(), 2u);

  // The emulated library numbers its candidates, all of which compute the same result. Stores
  // others than a choice would find.
  for (auto& [product, choice] : kept.chosen) choice.algorithm[7] ^= 1;
  Products second;
  second.gpu->autotune = true;
  const std::string text = gemm_algorithms_text(kept);
  cuda::keep_algorithms(*second.gpu, read_gemm_algorithms(text, "text"));
  second.made_by(kRows);
  second.made_by(kRows, {.bias = second.memory.tensor(DType::kBF16, {16}, 3 * 8192)});
  EXPECT_EQ(gemm_algorithms_text(*cuda::kept_algorithms(*second.gpu)), text);
  second.made_by(kRows + 1);
  EXPECT_EQ(cuda::kept_algorithms(*second.gpu)->chosen.size(), 3u);
}

TEST(Float8Products, AreRefusedWhereTheGpuHasNone) {
  Products p;
  const auto matrix = [&](int64_t slot, Float8Scaling scaling) {
    return Float8Matrix{
        .codes = p.memory.tensor(DType::kU8, {16, 32}, slot * 8192),
        .inverse = p.memory.tensor(DType::kF32, float8_inverse_shape(scaling, {16, 32}),
                                   slot * 8192 + 4096),
        .scaling = scaling};
  };
  const auto on = [&](int major, int minor, Float8Scaling scaling) {
    p.gpu->info.compute_major = major;
    p.gpu->info.compute_minor = minor;
    float8_gemm(p.ctx, p.memory.tensor(DType::kF32, {16, 16}, 3 * 8192), matrix(0, scaling),
                matrix(1, scaling), false);
    cuda::synchronize(*p.gpu, p.gpu->main);
  };
  on(9, 0, Float8Scaling::kTensor);
  on(8, 9, Float8Scaling::kTensor);
  on(9, 0, Float8Scaling::kRowGroup);
  EXPECT_THROW(on(8, 0, Float8Scaling::kTensor), InputError);
  EXPECT_THROW(on(8, 9, Float8Scaling::kRowGroup), InputError);
  EXPECT_THROW(on(10, 0, Float8Scaling::kRowGroup), InputError);
}

TEST(BlasPlans, AreTimedBesideTheResult) { EXPECT_EQ(sum_with(true), sum_with(false)); }

}  // namespace
}  // namespace trireme::test
