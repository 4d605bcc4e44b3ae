// Dot products of bfloat16, whichever kernel products choose on this processor.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/core/built_isas.h"
#include "engine/core/cpu.h"
#include "engine/ops/gemm/gemm_dot.cpu.h"
#include "tests/support/compare.h"

#if TRIREME_BUILT_AVX512  // the kernel has no other form

namespace trireme::test::test_gemm_dot {
namespace {

constexpr int64_t kColumns = 37;
constexpr float kAlpha = 0.5f;

struct DotCase {
  int64_t rows, terms;
  TestTensor x, w, bias, before, scratch;

  DotCase(int64_t m, int64_t k)
      : rows(m),
        terms(k),
        x(DType::kBF16, {m, k}, normals("x", m * k)),
        w(DType::kBF16, {kColumns, k}, normals("w", kColumns * k)),
        bias(DType::kF32, {kColumns}, normals("bias", kColumns)),
        before(DType::kF32, {m, kColumns}, normals("before", m * kColumns)),
        scratch(DType::kF32, {m, cpu::packed_columns(k)}) {}

  // Rows [first, first + count): accumulated, or with the bias.
  TestTensor multiply(int64_t first, int64_t count, bool accumulate) const {
    TestTensor y(DType::kF32, {count, kColumns},
                 to_doubles(before->slice(0, first, first + count)));
    cpu::Gemv<bf16> a;
    a.m = count;
    a.n = kColumns;
    a.k = terms;
    a.w = w->as<bf16>();
    a.w_stride = terms;
    a.x = x->slice(0, first, first + count).as<bf16>();
    a.x_stride = terms;
    a.packed_x = scratch->as<float>();
    a.y = y->raw();
    a.y_stride = kColumns;
    a.bias = accumulate ? nullptr : bias->raw();
    a.alpha = kAlpha;
    a.accumulate = accumulate;
    cpu::avx512::gemm_dot(a, 2);
    return y;
  }

  void check(bool accumulate) const {
    const std::vector<double> of_x = to_doubles(*x), of_w = to_doubles(*w);
    const std::vector<double> onto = to_doubles(accumulate ? *before : *bias);
    std::vector<double> want, magnitude;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < kColumns; ++j) {
        const double start = onto[static_cast<size_t>(accumulate ? i * kColumns + j : j)];
        double sum = start, size = std::abs(start);
        for (int64_t c = 0; c < terms; ++c) {
          const double product = kAlpha * of_x[static_cast<size_t>(i * terms + c)] *
                                 of_w[static_cast<size_t>(j * terms + c)];
          sum += product;
          size += std::abs(product);
        }
        want.push_back(sum);
        magnitude.push_back(size);
      }
    const TestTensor all = multiply(0, rows, accumulate);
    EXPECT_WITHIN(*all, want, magnitude, tolerance(DType::kF32, terms));
    for (int64_t i = 0; i < rows; ++i)
      EXPECT_SAME_BITS(*multiply(i, 1, accumulate), all->slice(0, i, i + 1));
    EXPECT_TRUE(all.guards_intact() && scratch.guards_intact());
  }
};

TEST(GemmDot, MatchesPlainSumsAndEachRowAlone) {
  if (best_isa() != Isa::kAvx512 || !cpu_has_avx512_bf16())
    GTEST_SKIP() << "this processor has no dot products of bfloat16";
  for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 45})
    for (const int64_t terms : {1, 31, 32, 545, 700}) {
      SCOPED_TRACE(concat(rows, " rows of ", terms));
      const DotCase one(rows, terms);
      one.check(false);
      one.check(true);
    }
}

}  // namespace
}  // namespace trireme::test::test_gemm_dot

#endif
