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
          EXPECT_EQ(gemm_path({isa, true, true}, g), gemm_path({isa, false, false}, g))
              << isa_name(isa) << " " << dtype_name(dtype) << " " << rows << " x " << terms;
        }
}

TEST(GemmChoice, RowsOfBfloat16ThatAreOurs) {
  const auto path = [](const GemmProcessor& processor, int64_t rows) {
    return gemm_path(processor, problem(DType::kBF16, rows, 700));
  };
  // The library multiplies none: not below AVX-512, and not with it where bf16 is not native.
  for (const GemmProcessor& processor :
       {GemmProcessor{Isa::kAvx2, true, true}, GemmProcessor{Isa::kAvx512, false, false}}) {
    EXPECT_EQ(path(processor, 96), GemmPath::kFewRows);
    EXPECT_EQ(path(processor, 97), GemmPath::kWidened);
  }
  // Widened beside native ones of the library, and by dot products.
  EXPECT_EQ(path({Isa::kAvx512, true, false}, 8), GemmPath::kFewRows);
  EXPECT_EQ(path({Isa::kAvx512, true, false}, 9), GemmPath::kLibrary);
  EXPECT_EQ(path({Isa::kAvx512, true, true}, 16), GemmPath::kFewRows);
  EXPECT_EQ(path({Isa::kAvx512, true, true}, 17), GemmPath::kLibrary);
}

TEST(GemmChoice, OneRowIsStreamedBelowAvx512) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const GemmProblem g = problem(dtype, 1, 700);
    EXPECT_EQ(gemm_path({Isa::kAvx2, false, false}, g), GemmPath::kStreamed);
    EXPECT_EQ(gemm_path({Isa::kPortable, false, false}, g), GemmPath::kStreamed);
    EXPECT_EQ(gemm_path({Isa::kAvx512, true, true}, g), GemmPath::kFewRows);
  }
}

}  // namespace
}  // namespace trireme::test::test_gemm_choice
