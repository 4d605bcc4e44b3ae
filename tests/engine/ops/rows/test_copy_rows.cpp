#include <cmath>
#include <numeric>

#include "engine/ops/rows/copy_rows.h"
#include "tests/support/op_run.h"

namespace trireme::test::test_copy_rows {
namespace {

TEST(CopyRows, MovesRowsBetweenStrides) {
  for (const int64_t rows : kOddSizes)
    for (const DType dtype : {DType::kF64, DType::kBF16})
      for_each_kernel([&](Ctx& ctx) {
        const int64_t columns = 5;
        const TestTensor x(dtype, {rows, columns + 2}, normals("x", rows * (columns + 2)));
        TestTensor y(dtype, {rows, columns + 1});
        const ConstTensor from = x->slice(1, 1, 1 + columns);
        copy_rows(ctx, y->slice(1, 0, columns), from);
        EXPECT_EQ(to_doubles(y->slice(1, 0, columns)), to_doubles(from));
        for (const double value : to_doubles(y->slice(1, columns, columns + 1)))
          EXPECT_EQ(value, 0);
        return outputs(y);
      });
}

TEST(CopyRows, ListsNameRowsOfEitherSide) {
  const int64_t rows = 11;
  const TestTensor x(DType::kF32, {rows, 3}, normals("x", rows * 3));
  std::vector<int32_t> shuffled(static_cast<size_t>(rows));
  for (size_t i = 0; i < shuffled.size(); ++i) shuffled[i] = static_cast<int32_t>(i * 4 % 11);
  const TestTensor list({rows}, shuffled);
  Ctx ctx(2, "test");
  const TestTensor gathered(DType::kF32, {rows, 3}), back(DType::kF32, {rows, 3});
  copy_rows(ctx, gathered, x, {}, list);
  for (int64_t i = 0; i < rows; ++i)
    EXPECT_SAME_BITS(gathered->slice(0, i, i + 1), x->slice(0, i * 4 % 11, i * 4 % 11 + 1));
  copy_rows(ctx, back, gathered, list);
  EXPECT_SAME_BITS(*back, *x);

  const TestTensor few({2}, std::vector<int32_t>{9, 2}), place({2}, std::vector<int32_t>{1, 10});
  const TestTensor y(DType::kF32, {rows, 3});
  copy_rows(ctx, y, x, place, few);
  EXPECT_SAME_BITS(y->slice(0, 1, 2), x->slice(0, 9, 10));
  EXPECT_SAME_BITS(y->slice(0, 10, 11), x->slice(0, 2, 3));
  EXPECT_EQ(to_doubles(y->slice(0, 2, 10)), std::vector<double>(24, 0.0));
}

TEST(CopyRows, RoundsIntoStridedRows) {
  for (const DType dtype : kFloatTypes)
    for_each_kernel([&](Ctx& ctx) {
      const int64_t rows = 33, columns = 19;
      const std::vector<double> values = normals("x", rows * columns);
      const TestTensor x(sum_dtype(dtype), {rows, columns}, values);
      TestTensor y(dtype, {rows, columns + 4});
      round_rows(ctx, y->slice(1, 2, 2 + columns), x);
      EXPECT_EQ(to_doubles(y->slice(1, 2, 2 + columns)), stored(dtype, values));
      return outputs(y);
    });
}

TEST(CopyRows, SeesHeadsAsColumns) {
  const TestTensor qkv(DType::kF32, {4, 6, 3}, normals("x", 72));
  const Tensor k = heads_as_columns(Tensor(qkv->slice(1, 2, 4)));
  EXPECT_EQ(k.shape(), (Shape{4, 6}));
  EXPECT_EQ(to_doubles(k), to_doubles(qkv->slice(1, 2, 4)));
  EXPECT_THROW(heads_as_columns(Tensor(qkv->slice(2, 0, 2))), Error);
}

TEST(CopyRows, RefusesWhatDoesNotFit) {
  Ctx ctx(1, "test");
  const TestTensor x(DType::kF32, {4, 3}), y(DType::kF32, {4, 3}), wide(DType::kF32, {4, 4});
  const TestTensor other(DType::kBF16, {4, 3}), longer(DType::kF32, {5, 3});
  const TestTensor beyond({4}, std::vector<int32_t>{0, 1, 2, 4});
  EXPECT_NO_THROW(copy_rows(ctx, y, x));
  EXPECT_THROW(copy_rows(ctx, wide, x), Error);
  EXPECT_THROW(copy_rows(ctx, other, x), Error);
  EXPECT_THROW(copy_rows(ctx, longer, x), Error);
  EXPECT_THROW(copy_rows(ctx, y, x, beyond), Error);
  EXPECT_THROW(copy_rows(ctx, y, x, {}, beyond), Error);
  EXPECT_THROW(round_rows(ctx, y, other), Error);
  expect_plannable([&](Ctx& planning) { copy_rows(planning, y, x); }, {&y});
}

}  // namespace
}  // namespace trireme::test::test_copy_rows
