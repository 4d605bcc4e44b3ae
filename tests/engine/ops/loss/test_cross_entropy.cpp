#include <cmath>

#include "engine/ops/loss/cross_entropy.h"
#include "tests/support/op_run.h"

namespace trireme::test::test_cross_entropy {
namespace {

using Values = std::vector<double>;

struct Reference {
  Values token_loss, d_logits;
  double sum = 0;
};

// The definition, in float64. logits (rows, columns).
Reference plain(const Values& logits, const std::vector<int32_t>& targets, int64_t columns,
                int64_t valid, double scale) {
  Reference out;
  out.d_logits.assign(logits.size(), 0.0);
  const auto n = static_cast<size_t>(columns), v = static_cast<size_t>(valid);
  for (size_t row = 0; row < targets.size(); ++row) {
    const double* x = logits.data() + row * n;
    double largest = -INFINITY, total = 0;
    for (size_t c = 0; c < v; ++c) largest = std::max(largest, x[c]);
    for (size_t c = 0; c < v; ++c) total += std::exp(x[c] - largest);
    const bool ignored = targets[row] == kIgnoredTarget;
    const auto target = static_cast<size_t>(ignored ? 0 : targets[row]);
    out.token_loss.push_back(ignored ? 0.0 : largest + std::log(total) - x[target]);
    out.sum += out.token_loss.back();
    for (size_t c = 0; c < v && !ignored; ++c)
      out.d_logits[row * n + c] =
          (std::exp(x[c] - largest) / total - (c == target ? 1.0 : 0.0)) * scale;
  }
  return out;
}

std::vector<int32_t> some_targets(int64_t rows, int64_t valid) {
  std::vector<int32_t> targets;
  for (int64_t r = 0; r < rows; ++r) {
    const uint32_t word = philox_word({5, stream_id("targets")}, static_cast<uint64_t>(r));
    targets.push_back(r % 4 == 3 ? kIgnoredTarget
                                 : static_cast<int32_t>(word % static_cast<uint32_t>(valid)));
  }
  targets[0] = static_cast<int32_t>(valid - 1);
  return targets;
}

TEST(CrossEntropy, MatchesTheDefinition) {
  const float scale = 0.125f;
  const int64_t rows = 7, padding = 5;
  const TestTensor ts(DType::kF64, {1}, {scale});
  for (DType dtype : {DType::kF64, DType::kF32})
    for (DType gradient : kFloatTypes)
      for (int64_t valid : {int64_t{1}, int64_t{7}, int64_t{33}, int64_t{1000}, int64_t{5003}}) {
        const bool narrowed = dtype == DType::kF32 && dtype_size(gradient) == 2;
        if (gradient != dtype && !narrowed) continue;
        SCOPED_TRACE(concat(dtype, " gradient ", gradient, " V ", valid));
        const int64_t columns = valid + padding;
        Values logits = stored(dtype, normals("logits", rows * columns, 4.0));
        const std::vector<int32_t> targets = some_targets(rows, valid);
        const Reference want = plain(logits, targets, columns, valid, scale);
        // The content of the padding must not matter.
        for (size_t i = 0; i < logits.size(); ++i)
          if (static_cast<int64_t>(i) % columns >= valid) logits[i] = std::nan("");
        const TestTensor tx(dtype, {rows, columns}, logits), tt({rows}, targets);
        const Values magnitude(logits.size(), scale);  // p - 1 cancels
        for_each_kernel([&](Ctx& ctx) {
          TestTensor sum(DType::kF64, {1}, {100.0}), token(dtype, {rows});
          TestTensor d(gradient, {rows, columns}, normals("garbage", rows * columns));
          softmax_cross_entropy(ctx, sum, token, d, tx, tt, ts, valid);
          EXPECT_CLOSE(sum, {100.0 + want.sum}, tolerance(dtype, rows + valid));
          EXPECT_WITHIN(token, want.token_loss, Values(want.token_loss.size(), 16.0),
                        tolerance(dtype, valid));
          EXPECT_WITHIN(d, want.d_logits, magnitude, tolerance(gradient, valid));
          return outputs(sum, token, d);
        });
      }
}

TEST(CrossEntropy, OverwritesTheLogitsAndSkipsAbsentOutputs) {
  const int64_t rows = 9, columns = 127;
  const Values logits = normals("logits", rows * columns);
  const TestTensor tx(DType::kF32, {rows, columns}, logits), ts(DType::kF64, {1}, {1.0});
  const TestTensor tt({rows}, some_targets(rows, columns));
  for_each_kernel([&](Ctx& ctx) {
    TestTensor sum(DType::kF64, {1}), other(DType::kF64, {1}), third(DType::kF64, {1});
    TestTensor d(DType::kF32, {rows, columns}), in_place(DType::kF32, {rows, columns}, logits);
    softmax_cross_entropy(ctx, sum, {}, d, tx, tt, ts, columns);
    softmax_cross_entropy(ctx, other, {}, in_place, in_place, tt, ts, columns);
    EXPECT_SAME_BITS(*in_place, *d);
    softmax_cross_entropy(ctx, third, {}, {}, tx, tt, ts, columns);
    EXPECT_SAME_BITS(*other, *sum);
    EXPECT_SAME_BITS(*third, *sum);
    return outputs(sum, d);
  });
}

TEST(CrossEntropy, ChunksOfTokensGiveTheSameSum) {
  const int64_t rows = 33, columns = 100;
  const TestTensor tx(DType::kF32, {rows, columns}, normals("logits", rows * columns));
  const TestTensor tt({rows}, some_targets(rows, columns)), ts(DType::kF64, {1}, {1.0});
  for_each_kernel([&](Ctx& ctx) {
    TestTensor whole(DType::kF64, {1}), chunked(DType::kF64, {1});
    softmax_cross_entropy(ctx, whole, {}, {}, tx, tt, ts, columns);
    for (int64_t begin = 0; begin < rows; begin += 7) {
      const int64_t end = std::min(rows, begin + 7);
      softmax_cross_entropy(ctx, chunked, {}, {}, tx->slice(0, begin, end),
                            tt->slice(0, begin, end), ts, columns);
    }
    EXPECT_SAME_BITS(*chunked, *whole);
    return outputs(whole);
  });
}

TEST(CrossEntropy, TakesRowsOfAnyStride) {
  const int64_t rows = 5, columns = 33, stride = 48;
  const Values wide = normals("logits", rows * stride);
  const TestTensor base(DType::kF32, {rows, stride}, wide), ts(DType::kF64, {1}, {1.0});
  const Tensor view = base->slice(1, 0, columns);
  const TestTensor packed(DType::kF32, {rows, columns}, to_doubles(view));
  const TestTensor tt({rows}, some_targets(rows, columns));
  for_each_kernel([&](Ctx& ctx) {
    TestTensor a(DType::kF64, {1}), b(DType::kF64, {1});
    TestTensor d_wide(DType::kBF16, {rows, stride}, Values(wide.size(), 3.0));
    TestTensor d(DType::kBF16, {rows, columns});
    softmax_cross_entropy(ctx, a, {}, d_wide->slice(1, 0, columns), view, tt, ts, columns);
    softmax_cross_entropy(ctx, b, {}, d, packed, tt, ts, columns);
    EXPECT_SAME_BITS(*a, *b);
    EXPECT_EQ(to_doubles(d_wide->slice(1, 0, columns)), to_doubles(*d));
    for (double v : to_doubles(d_wide->slice(1, columns, stride))) EXPECT_EQ(v, 3.0);
    return outputs(a, d_wide);
  });
}

TEST(CrossEntropy, GradientMatchesFiniteDifferences) {
  const int64_t rows = 3, columns = 9, valid = 7;
  const Values logits = normals("logits", rows * columns);
  const TestTensor tt({rows}, std::vector<int32_t>{6, kIgnoredTarget, 2});
  const TestTensor ts(DType::kF64, {1}, {0.5});
  Ctx ctx(1, "test");
  const auto f = [&](const Values& v) {
    const TestTensor sum(DType::kF64, {1});
    softmax_cross_entropy(ctx, sum, {}, {}, TestTensor(DType::kF64, {rows, columns}, v), tt, ts,
                          valid);
    return to_doubles(*sum);
  };
  const TestTensor d(DType::kF64, {rows, columns}, logits), sum(DType::kF64, {1});
  softmax_cross_entropy(ctx, sum, {}, d, d, tt, ts, valid);
  EXPECT_LT(worst_relative(to_doubles(*d), finite_difference_gradient(f, logits, {0.5})),
            finite_difference_tolerance());
}

TEST(CrossEntropy, LargeAndInfiniteLogits) {
  const TestTensor ts(DType::kF64, {1}, {1.0}), tt({1}, std::vector<int32_t>{1});
  const auto loss = [&](Ctx& ctx, const Values& logits) {
    const auto n = static_cast<int64_t>(logits.size());
    const TestTensor sum(DType::kF64, {1}), x(DType::kF32, {1, n}, logits), d(DType::kF32, {1, n});
    softmax_cross_entropy(ctx, sum, {}, d, x, tt, ts, n);
    if (std::isfinite(to_doubles(*sum)[0])) {
      for (double v : to_doubles(*d)) EXPECT_TRUE(std::isfinite(v));
    }
    return to_doubles(*sum)[0];
  };
  for_each_kernel([&](Ctx& ctx) {
    EXPECT_EQ(loss(ctx, {1e30, 1e30, -1e30}), std::log(2.0));
    EXPECT_EQ(loss(ctx, {-1e30, -1e30, -1e30, -1e30}), std::log(4.0));
    EXPECT_EQ(loss(ctx, {-INFINITY, 5.0, -INFINITY}), 0.0);
    // The first chunk of the row is all -infinity, the target's chunk is finite.
    Values late(5000, -INFINITY);
    late[1] = 1.0;
    late[4999] = 1.0;
    EXPECT_EQ(loss(ctx, late), std::log(2.0));
    EXPECT_EQ(loss(ctx, {1.0, -INFINITY}), INFINITY);
    // Values that are not finite must not give a finite loss.
    EXPECT_FALSE(std::isfinite(loss(ctx, {1.0, 2.0, std::nan("")})));
    EXPECT_FALSE(std::isfinite(loss(ctx, {1.0, 2.0, INFINITY})));
    EXPECT_FALSE(std::isfinite(loss(ctx, Values(40, -INFINITY))));
    return outputs(TestTensor(DType::kF64, {1}, {loss(ctx, {0.5, 1.5})}));
  });
}

TEST(CrossEntropy, RefusesWrongOperands) {
  Ctx ctx(1, "test");
  const TestTensor x(DType::kF32, {2, 5}), sum(DType::kF64, {1}), scale(DType::kF64, {1});
  const TestTensor good({2}, std::vector<int32_t>{0, 4}), half(DType::kBF16, {2, 5});
  for (int32_t bad : {5, -1, -99})
    EXPECT_THROW(softmax_cross_entropy(ctx, sum, {}, {}, x,
                                       TestTensor({2}, std::vector<int32_t>{0, bad}), scale, 5),
                 Error);
  EXPECT_THROW(softmax_cross_entropy(ctx, sum, {}, {}, x, good, scale, 4), Error) << "padding";
  EXPECT_THROW(softmax_cross_entropy(ctx, sum, {}, {}, x, good, scale, 6), Error);
  EXPECT_THROW(softmax_cross_entropy(ctx, sum, {}, {}, x, good, scale, 0), Error);
  EXPECT_THROW(softmax_cross_entropy(ctx, sum, {}, {}, half, good, scale, 5), Error);
  EXPECT_THROW(
      softmax_cross_entropy(ctx, sum, {}, TestTensor(DType::kF64, {2, 5}), x, good, scale, 5),
      Error);
  EXPECT_THROW(softmax_cross_entropy(ctx, TestTensor(DType::kF32, {1}), {}, {}, x, good, scale, 5),
               Error);
  EXPECT_THROW(softmax_cross_entropy(ctx, sum, sum, {}, x, good, scale, 5), Error);
}

TEST(CrossEntropy, PlanningWritesNothing) {
  const TestTensor x(DType::kF32, {2, 5}, normals("x", 10)), sum(DType::kF64, {1}, {7.0});
  const TestTensor tt({2}, std::vector<int32_t>{99, 99}), ts(DType::kF64, {1});
  const ArenaPlan plan = expect_plannable(
      [&](Ctx& ctx) { softmax_cross_entropy(ctx, sum, {}, x, x, tt, ts, 5); }, {&x, &sum});
  EXPECT_EQ(std::ssize(plan.blocks), 1);
}

}  // namespace
}  // namespace trireme::test::test_cross_entropy
