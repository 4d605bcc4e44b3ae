#include <cmath>

#include "engine/ops/compression/orthonormal_rows.h"
#include "tests/support/op_run.h"

namespace trireme::test::test_orthonormal_rows {
namespace {

double dot(const std::vector<double>& y, int64_t i, int64_t j, int64_t n) {
  double sum = 0;
  for (int64_t k = 0; k < n; ++k)
    sum += y[static_cast<size_t>(i * n + k)] * y[static_cast<size_t>(j * n + k)];
  return sum;
}

TEST(OrthonormalRows, AreOrthonormalAndSpanTheSameSpace) {
  for (DType dtype : {DType::kF64, DType::kF32})
    for (int64_t n : {7, 33, 1000}) {
      const int64_t rows = 5;
      const double close = dtype == DType::kF64 ? 1e-13 : 1e-5;
      const TestTensor x(dtype, {rows, n}, normals("y", rows * n));
      const std::vector<double> before = to_doubles(*x);
      for_each_kernel([&](Ctx& ctx) {
        TestTensor y(dtype, {rows, n}, before);
        orthonormal_rows(ctx, y);
        const std::vector<double> q = to_doubles(*y);
        for (int64_t i = 0; i < rows; ++i)
          for (int64_t j = 0; j <= i; ++j)
            EXPECT_NEAR(dot(q, i, j, n), i == j ? 1.0 : 0.0, close) << n << " " << i << " " << j;
        // Row i is a combination of the rows up to i: its projection on them is itself.
        for (int64_t i = 0; i < rows; ++i)
          for (int64_t k = 0; k < n; ++k) {
            double projected = 0;
            for (int64_t j = 0; j <= i; ++j) {
              double along = 0;
              for (int64_t c = 0; c < n; ++c)
                along += before[static_cast<size_t>(i * n + c)] * q[static_cast<size_t>(j * n + c)];
              projected += along * q[static_cast<size_t>(j * n + k)];
            }
            EXPECT_NEAR(projected, before[static_cast<size_t>(i * n + k)], 10 * close);
          }
        return outputs(y);
      });
    }
}

TEST(OrthonormalRows, DependentRowsBecomeZero) {
  for (DType dtype : {DType::kF64, DType::kF32})
    for_each_kernel([&](Ctx& ctx) {
      TestTensor y(dtype, {4, 3}, {1, 2, 2, 0, 0, 0, 0.1, 0.2, 0.2, 0, 1, -1});
      orthonormal_rows(ctx, y);
      const std::vector<double> q = to_doubles(*y);
      EXPECT_NEAR(q[0], 1.0 / 3, 1e-6);
      for (size_t i = 3; i < 9; ++i) EXPECT_EQ(q[i], 0.0);
      EXPECT_NEAR(dot(q, 3, 3, 3), 1.0, 1e-6);
      return outputs(y);
    });
}

// Squares of such elements are no float32 numbers.
TEST(OrthonormalRows, SmallRowsAreRowsToo) {
  for (double size : {1e-30, 1e30})
    for_each_kernel([&](Ctx& ctx) {
      TestTensor y(DType::kF32, {3, 2}, {3 * size, 4 * size, 6 * size, 8 * size, 0, size});
      orthonormal_rows(ctx, y);
      const std::vector<double> q = to_doubles(*y), want{0.6, 0.8, 0, 0};
      for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(q[i], want[i], 1e-6) << size;
      return outputs(y);
    });
}

TEST(OrthonormalRows, RowsOfZerosAndNanAreNotCopied) {
  const double nan = std::nan("");
  for (DType dtype : {DType::kF64, DType::kF32})
    for_each_kernel([&](Ctx& ctx) {
      TestTensor y(dtype, {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
      const TestTensor x(dtype, {4, 2}, {0, 7, 0, -0.0, 8, 0, nan, 9});
      copy_nonzero_rows(ctx, y, x);
      EXPECT_EQ(to_doubles(*y), (std::vector<double>{0, 7, 3, 4, 8, 0, 7, 8}));
      return outputs(y);
    });
}

TEST(OrthonormalRows, RefusesOtherTypesAndShapes) {
  Ctx ctx(1, "test");
  const TestTensor flat(DType::kF32, {4}), narrow(DType::kBF16, {2, 2});
  EXPECT_THROW(orthonormal_rows(ctx, flat), Error);
  EXPECT_THROW(orthonormal_rows(ctx, narrow), Error);
  const TestTensor y(DType::kF32, {2, 2}), wide(DType::kF64, {2, 2});
  EXPECT_THROW(copy_nonzero_rows(ctx, y, wide), Error);
}

TEST(OrthonormalRows, PlanningWritesNothing) {
  const TestTensor y(DType::kF32, {2, 4}, normals("y", 8));
  const TestTensor x(DType::kF32, {2, 4}, normals("x", 8));
  expect_plannable(
      [&](Ctx& ctx) {
        orthonormal_rows(ctx, y);
        copy_nonzero_rows(ctx, y, x);
      },
      {&y});
}

}  // namespace
}  // namespace trireme::test::test_orthonormal_rows
