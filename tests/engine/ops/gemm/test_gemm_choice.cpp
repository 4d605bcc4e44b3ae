#include <gtest/gtest.h>

#include "engine/ops/gemm/gemm_choice.h"

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

// A process limited to a lower instruction set on an AVX-512 machine takes the same paths as a
// machine without better ones, whatever its library supports.
TEST(GemmChoice, TheProcessorsLibraryDoesNotDecideForALowerSet) {
  for (const Isa isa : {Isa::kAvx2, Isa::kPortable})
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
      for (const int64_t terms : {64, 700, 4096, 32768})
        for (int64_t rows = 1; rows <= 200; ++rows) {
          const GemmProblem g = problem(dtype, rows, terms);
          EXPECT_EQ(gemm_path({isa, true, true, true}, g), gemm_path({isa, false, false, false}, g))
              << isa_name(isa) << " " << dtype_name(dtype) << " " << rows << " x " << terms;
        }
}

TEST(GemmChoice, RowsOfBfloat16ThatAreOurs) {
  const auto path = [](const GemmProcessor& processor, int64_t rows) {
    return gemm_path(processor, problem(DType::kBF16, rows, 700));
  };
  // The library is not used: not below AVX-512, and not with it where float32 is faster.
  const GemmProcessor avx2{Isa::kAvx2, true, true, true}, wide{Isa::kAvx512, false, false, false};
  EXPECT_EQ(path(avx2, 96), GemmPath::kFewRows);
  EXPECT_EQ(path(avx2, 97), GemmPath::kWidened);
  EXPECT_EQ(path(wide, 160), GemmPath::kFewRows);
  EXPECT_EQ(path(wide, 161), GemmPath::kWidened);
  // Fast dot products, and AMX.
  EXPECT_EQ(path({Isa::kAvx512, true, true, false}, 16), GemmPath::kFewRows);
  EXPECT_EQ(path({Isa::kAvx512, true, true, false}, 17), GemmPath::kLibrary);
  const GemmProcessor amx{Isa::kAvx512, true, false, true};
  EXPECT_EQ(path(amx, 8), GemmPath::kFewRows);
  EXPECT_EQ(path(amx, 9), GemmPath::kAmx);
  EXPECT_EQ(path(amx, 256), GemmPath::kAmx);
  EXPECT_EQ(path(amx, 257), GemmPath::kLibrary);
}

TEST(GemmChoice, ProductsThatAmxTilesDoNotHold) {
  const GemmProcessor amx{Isa::kAvx512, true, false, true};
  EXPECT_EQ(gemm_path(amx, problem(DType::kF32, 16, 700)), GemmPath::kFewRows);
  GemmProblem narrow = problem(DType::kBF16, 16, 700);
  narrow.n = 15;
  EXPECT_EQ(gemm_path(amx, narrow), GemmPath::kLibrary);
  GemmProblem untransposed = problem(DType::kBF16, 16, 700);
  untransposed.transpose_b = false;
  EXPECT_EQ(gemm_path(amx, untransposed), GemmPath::kLibrary);
}

TEST(GemmChoice, OneRowIsStreamedBelowAvx512) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const GemmProblem g = problem(dtype, 1, 700);
    EXPECT_EQ(gemm_path({Isa::kAvx2, false, false, false}, g), GemmPath::kStreamed);
    EXPECT_EQ(gemm_path({Isa::kPortable, false, false, false}, g), GemmPath::kStreamed);
    EXPECT_EQ(gemm_path({Isa::kAvx512, true, true, false}, g), GemmPath::kFewRows);
  }
}

}  // namespace
}  // namespace trireme::test::test_gemm_choice
