#include <cmath>

#include "engine/core/normal_number.h"
#include "engine/ops/rows/fill_normal.h"
#include "tests/support/op_run.h"

namespace trireme::test::test_fill_normal {
namespace {

constexpr RandomKey kKey{3, stream_id("fill_normal")};

// Rows of 3 elements of a tensor whose rows have 7, from its sixth element on.
constexpr ElementIndex kBox{.first = 5, .width = 3, .stride = 7};

TEST(FillNormal, TakesTheNumbersOfTheWholeTensor) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16})
    for_each_kernel([&](Ctx& ctx) {
      TestTensor y(dtype, {11});
      fill_normal(ctx, *y, kKey, 0.5, kBox);
      std::vector<double> want;
      for (int64_t i = 0; i < 11; ++i)
        want.push_back(0.5 * philox_normal(kKey, static_cast<uint64_t>(5 + i / 3 * 7 + i % 3)));
      EXPECT_EQ(compare_each(*y, want, tolerance(dtype)), "");
      return outputs(y);
    });
}

TEST(FillNormal, PartsHaveTheBitsOfTheWhole) {
  const int64_t n = 20'000, middle = 7'777;  // more than one thread's share
  Ctx ctx(2, "test");
  const TestTensor whole(DType::kF32, {n}), parts(DType::kF32, {n});
  fill_normal(ctx, *whole, kKey, 1.0, kBox);
  ElementIndex behind = kBox;
  behind.offset = middle;
  fill_normal(ctx, parts->slice(0, 0, middle), kKey, 1.0, kBox);
  fill_normal(ctx, parts->slice(0, middle, n), kKey, 1.0, behind);
  EXPECT_SAME_BITS(*parts, *whole);
}

TEST(FillNormal, RefusesAMatrix) {
  Ctx ctx(1, "test");
  const TestTensor y(DType::kF32, {2, 3});
  EXPECT_THROW(fill_normal(ctx, *y, kKey, 1.0, {}), Error);
}

}  // namespace
}  // namespace trireme::test::test_fill_normal
