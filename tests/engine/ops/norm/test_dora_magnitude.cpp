#include <array>
#include <cmath>

#include "engine/ops/norm/dora_magnitude.h"
#include "tests/support/op_run.h"

namespace trireme::test::test_dora_magnitude {
namespace {

using Values = std::vector<double>;

// The last third of each row belongs to another tensor: rows with a stride.
Tensor outputs_of(const TestTensor& all, int64_t columns) { return all->slice(1, 0, columns); }

Values spread(const Values& values, int64_t columns, int64_t stride) {
  Values out(values.size() / static_cast<size_t>(columns) * static_cast<size_t>(stride), 7.0);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    out[static_cast<size_t>(at / columns * stride + at % columns)] = values[i];
  }
  return out;
}

TEST(DoraMagnitude, RowSquaresAreThoseOfTheSum) {
  for (const DType dtype : kFloatTypes)
    for (const auto& size :
         {std::array<int64_t, 3>{5, 7, 1}, {3, 300, 4}, {70, 33, 9}, {1, 1, 1}}) {
      const int64_t rows = size[0], columns = size[1], rank = size[2];
      SCOPED_TRACE(concat(dtype, " ", rows, " ", columns, " ", rank));
      const Values w = stored(dtype, normals("w", rows * columns));
      const Values a = stored(dtype, normals("a", rank * columns));
      const Values b = stored(dtype, normals("b", rows * rank));
      constexpr double kScale = 1.5;
      Values want;
      for (int64_t j = 0; j < rows; ++j) {
        double squares = 0;
        for (int64_t i = 0; i < columns; ++i) {
          double v = w[static_cast<size_t>(j * columns + i)];
          for (int64_t k = 0; k < rank; ++k)
            v += kScale * b[static_cast<size_t>(j * rank + k)] *
                 a[static_cast<size_t>(k * columns + i)];
          squares += v * v;
        }
        want.push_back(squares);
      }
      const TestTensor wt(dtype, {rows, columns}, w), at(dtype, {rank, columns}, a),
          bt(dtype, {rows, rank}, b);
      for_each_kernel([&](Ctx& ctx) {
        TestTensor squares(sum_dtype(dtype), {rows});
        adapted_row_squares(ctx, squares, wt, at, bt, kScale);
        EXPECT_CLOSE(squares, want, tolerance(sum_dtype(dtype), columns * (rank + 1)));
        return outputs(squares);
      });
    }
}

TEST(DoraMagnitude, ScalesAndSumsColumns) {
  const int64_t rows = 37;
  for (const DType dtype : kFloatTypes)
    for (const int64_t columns : {1, 6, 64, 300}) {
      SCOPED_TRACE(concat(dtype, " ", columns));
      const DType sums = sum_dtype(dtype);
      const int64_t n = rows * columns, stride = columns + 3;
      const Values x = stored(dtype, normals("x", n)), y = stored(dtype, normals("y", n));
      const Values m = stored(dtype, normals("m", columns));
      Values squares;
      for (int64_t c = 0; c < columns; ++c)
        squares.push_back(c == 2 ? 0.0 : static_cast<double>(c % 5 + 1) / 4);
      Values scaled = x, added = y, dm = Values(static_cast<size_t>(columns), 1.0);
      for (size_t i = 0; i < x.size(); ++i) {
        const size_t c = i % static_cast<size_t>(columns);
        const double norm = std::sqrt(squares[c]), g = norm > 0 ? m[c] / norm : 1;
        scaled[i] = g * x[i];
        added[i] = y[i] + (g - 1) * x[i];
        if (norm > 0) dm[c] += y[i] * x[i] / norm;
      }
      const TestTensor mt(dtype, {columns}, m), qt(sums, {columns}, squares);
      for_each_kernel([&](Ctx& ctx) {
        const Shape wide{rows, stride};
        TestTensor in_place(dtype, wide, spread(x, columns, stride)),
            into(dtype, wide, spread(y, columns, stride)), copied(dtype, {rows, columns}),
            gradient(sums, {columns}, Values(static_cast<size_t>(columns), 1.0));
        magnitude_backward(ctx, gradient, outputs_of(into, columns), outputs_of(in_place, columns),
                           qt, true);
        EXPECT_CLOSE(gradient, dm, tolerance(sums, rows));
        scale_outputs(ctx, outputs_of(into, columns), outputs_of(in_place, columns), mt, qt, -1,
                      true);
        EXPECT_CLOSE(into, spread(added, columns, stride), tolerance(dtype, 2));
        scale_outputs(ctx, copied, outputs_of(in_place, columns), {}, {}, 0, false);
        EXPECT_SAME_BITS(*copied, *TestTensor(dtype, {rows, columns}, x));
        scale_outputs(ctx, outputs_of(in_place, columns), outputs_of(in_place, columns), mt, qt, 0,
                      false);
        EXPECT_CLOSE(in_place, spread(scaled, columns, stride), tolerance(dtype, 2));
        return outputs(in_place, into, copied, gradient);
      });
    }
}

TEST(DoraMagnitude, RefusesWrongOperands) {
  Ctx ctx(1, "test");
  const TestTensor w(DType::kF32, {4, 8}), a(DType::kF32, {2, 8}), b(DType::kF32, {4, 2}),
      q(DType::kF32, {4}), x(DType::kF32, {5, 4});
  EXPECT_THROW(adapted_row_squares(ctx, q, w, b, b, 1), Error);
  EXPECT_THROW(adapted_row_squares(ctx, TestTensor(DType::kF64, {4}), w, a, b, 1), Error);
  EXPECT_THROW(scale_outputs(ctx, x, x, q, {}, 0, false), Error);
  EXPECT_THROW(scale_outputs(ctx, x, x, TestTensor(DType::kF32, {5}), q, 0, false), Error);
  EXPECT_THROW(magnitude_backward(ctx, q, x, w, q, false), Error);
}

TEST(DoraMagnitude, IsPlannable) {
  const TestTensor w(DType::kBF16, {4, 8}), a(DType::kBF16, {2, 8}), b(DType::kBF16, {4, 2}),
      m(DType::kBF16, {4}), q(DType::kF32, {4}), dm(DType::kF32, {4}), x(DType::kBF16, {40, 4});
  expect_plannable(
      [&](Ctx& ctx) {
        adapted_row_squares(ctx, q, w, a, b, 1);
        scale_outputs(ctx, x, x, m, q, 0, false);
        magnitude_backward(ctx, dm, x, x, q, false);
      },
      {&q, &x, &dm});
}

}  // namespace
}  // namespace trireme::test::test_dora_magnitude
