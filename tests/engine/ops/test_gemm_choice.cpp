#include <gtest/gtest.h>

#include "engine/ops/gemm_choice.h"

namespace trireme::test::test_gemm_choice {
namespace {

GemmProblem problem(DType dtype, int64_t rows, int64_t terms) {
  GemmProblem g;
  g.m = rows;
  g.n = 64;
  g.k = terms;
  g.transpose_b = true;
  g.in = dtype;
  return g;
}

// A process limited to a lower set on an AVX-512 machine takes the paths of a machine that has no
// better one, whatever its library could multiply.
TEST(GemmChoice, TheProcessorsLibraryDoesNotDecideForALowerSet) {
  for (const Isa isa : {Isa::kAvx2, Isa::kPortable})
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
      for (const int64_t terms : {64, 700, 4096, 32768})
        for (int64_t rows = 1; rows <= 200; ++rows) {
          const GemmProblem g = problem(dtype, rows, terms);
          EXPECT_EQ(gemm_path(isa, true, g), gemm_path(isa, false, g))
              << isa_name(isa) << " " << dtype_name(dtype) << " " << rows << " x " << terms;
        }
}

TEST(GemmChoice, FewRowsOfBfloat16AreOursBelowAvx512) {
  EXPECT_EQ(gemm_path(Isa::kAvx2, true, problem(DType::kBF16, 45, 700)), GemmPath::kFewRows);
  EXPECT_EQ(gemm_path(Isa::kAvx512, true, problem(DType::kBF16, 45, 700)), GemmPath::kLibrary);
  EXPECT_EQ(gemm_path(Isa::kAvx512, false, problem(DType::kBF16, 45, 700)), GemmPath::kFewRows);
  EXPECT_EQ(gemm_path(Isa::kAvx2, true, problem(DType::kBF16, 97, 700)), GemmPath::kWidened);
}

}  // namespace
}  // namespace trireme::test::test_gemm_choice
