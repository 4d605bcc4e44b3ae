#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "engine/ops/compression/sparse_code.h"
#include "tests/support/op_run.h"

namespace trireme::test::test_sparse_code {
namespace {

constexpr int64_t kRows = 3, kColumns = 301;

// Positions of the `kept` largest keys, ascending; of equal keys the first.
std::vector<int> largest(const std::vector<double>& keys, int64_t kept) {
  std::vector<int> order(keys.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int a, int b) {
    return keys[static_cast<size_t>(a)] > keys[static_cast<size_t>(b)];
  });
  order.resize(static_cast<size_t>(kept));
  std::ranges::sort(order);
  return order;
}

// body(begin of the block in x, its width, begin of its selected elements, their number)
template <class Body>
void for_blocks(const SparseCode& code, Body&& body) {
  int64_t selected = 0;
  for (int64_t r = 0; r < kRows; ++r)
    for (int64_t c = 0; c < kColumns; c += code.block) {
      const int64_t width = std::min(code.block, kColumns - c);
      const int64_t kept = kept_in_block(code, width);
      body(r * kColumns + c, width, selected, kept);
      selected += kept;
    }
}

void check_largest(const SparseCode& code, const std::vector<double>& v, const TestTensor& index,
                   const TestTensor& values, const TestTensor& residual, const TestTensor& y) {
  const std::vector<double> sent = to_doubles(*values), left = to_doubles(*residual);
  const std::vector<double> back = to_doubles(*y);
  for_blocks(code, [&](int64_t begin, int64_t width, int64_t selected, int64_t kept) {
    std::vector<double> keys;
    for (int64_t i = 0; i < width; ++i) keys.push_back(std::abs(v[static_cast<size_t>(begin + i)]));
    const std::vector<int> want = largest(keys, kept);
    std::vector<bool> is_sent(keys.size(), false);
    for (int64_t k = 0; k < kept; ++k) {
      const int i = want[static_cast<size_t>(k)];
      EXPECT_EQ(index->as<uint16_t>()[selected + k], i);
      EXPECT_EQ(sent[static_cast<size_t>(selected + k)], v[static_cast<size_t>(begin + i)]);
      is_sent[static_cast<size_t>(i)] = true;
    }
    for (int64_t i = 0; i < width; ++i) {
      const auto at = static_cast<size_t>(begin + i);
      EXPECT_EQ(left[at], is_sent[static_cast<size_t>(i)] ? 0.0 : v[at]);
      EXPECT_EQ(back[at], is_sent[static_cast<size_t>(i)] ? v[at] : 0.0);
    }
  });
}

TEST(SparseCode, LargestEqualTheReference) {
  for (DType dtype : kFloatTypes)
    for (double ratio : {0.001, 0.1, 0.5, 1.0})
      for (int64_t block : {1, 7, 64, 300, 4096}) {
        const SparseCode code{ratio, block};
        const DType sum = sum_dtype(dtype);
        const Shape shape{kRows, kColumns}, kept{kRows, kept_in_row(code, kColumns)};
        std::vector<double> noise = normals("residual", kRows * kColumns);
        std::vector<double> values = normals("x", kRows * kColumns);
        std::fill_n(values.begin() + 10, 90, -0.25);  // equal ones
        std::fill_n(noise.begin() + 10, 90, 0.0);
        values[50] = 0.25;
        const TestTensor x(dtype, shape, values);
        for_each_kernel([&](Ctx& ctx) {
          TestTensor residual(sum, shape, noise), index(DType::kU16, kept), sent(sum, kept);
          const std::vector<double> before = to_doubles(*residual), exact = to_doubles(*x);
          std::vector<double> v(exact.size());
          for (size_t i = 0; i < v.size(); ++i)
            v[i] = sum == DType::kF64 ? exact[i] + before[i]
                                      : static_cast<double>(static_cast<float>(exact[i]) +
                                                            static_cast<float>(before[i]));
          TestTensor y(sum, shape);
          select_largest(ctx, code, index, x, residual);
          gather_selected(ctx, code, sent, index, x, residual);
          scatter_selected(ctx, code, y, sent, index, false);
          check_largest(code, v, index, sent, residual, y);
          return outputs(index, sent, residual, y);
        });
      }
}

TEST(SparseCode, RandomOnesAreThoseOfTheKey) {
  const SparseCode code{0.2, 50};
  const RandomKey key{3, stream_id("w")};
  const int64_t blocks = ceil_div(kColumns, code.block);
  for_each_kernel([&](Ctx& ctx) {
    TestTensor index(DType::kU16, {kRows, kept_in_row(code, kColumns)});
    select_random(ctx, code, index, kColumns, {.key = key, .first = 5, .stride = 40});
    for_blocks(code, [&](int64_t begin, int64_t width, int64_t selected, int64_t kept) {
      const int64_t row = begin / kColumns, block = begin % kColumns / code.block;
      std::vector<double> words;
      for (int64_t i = 0; i < width; ++i)
        words.push_back(
            philox_word(key, static_cast<uint64_t>((5 + row * 40 + block) * code.block + i)));
      const std::vector<int> want = largest(words, kept);
      for (int64_t k = 0; k < kept; ++k)
        EXPECT_EQ(index->as<uint16_t>()[selected + k], want[static_cast<size_t>(k)]);
    });
    // A part: the last two blocks of each row.
    const int64_t columns = kColumns - (blocks - 2) * code.block;
    TestTensor part(DType::kU16, {kRows, kept_in_row(code, columns)});
    select_random(ctx, code, part, columns, {.key = key, .first = 5 + blocks - 2, .stride = 40});
    for (int64_t r = 0; r < kRows; ++r) {
      const uint16_t* const end = index->as<uint16_t>() + (r + 1) * index->size(1);
      EXPECT_TRUE(std::equal(end - part->size(1), end, part->as<uint16_t>() + r * part->size(1)));
    }
    return outputs(index, part);
  });
}

TEST(SparseCode, AddsAndIgnoresIndicesOutsideOfTheBlock) {
  const SparseCode code{0.5, 4};
  for (DType dtype : kFloatTypes)
    for_each_kernel([&](Ctx& ctx) {
      TestTensor index(DType::kU16, {1, 3}), y(dtype, {1, 6}, {1, 2, 3, 4, 5, 6});
      const std::array<uint16_t, 3> positions{1, 4, 1};  // the second is outside of its block
      std::ranges::copy(positions, index->as<uint16_t>());
      const TestTensor values(sum_dtype(dtype), {1, 3}, {10, 20, 30});
      scatter_selected(ctx, code, y, values, index, true);
      EXPECT_EQ(to_doubles(*y), (std::vector<double>{1, 12, 3, 4, 5, 36}));
      return outputs(y);
    });
}

TEST(SparseCode, KeepsTheSignOfZero) {
  const SparseCode code{1.0, 4};
  for (DType dtype : kFloatTypes)
    for_each_kernel([&](Ctx& ctx) {
      TestTensor index(DType::kU16, {1, 2}), y(dtype, {1, 2});
      index->as<uint16_t>()[0] = 0;
      index->as<uint16_t>()[1] = 1;
      const TestTensor values(sum_dtype(dtype), {1, 2}, {-0.0, 0.0});
      scatter_selected(ctx, code, y, values, index, false);
      EXPECT_TRUE(std::signbit(to_doubles(*y)[0]));
      EXPECT_FALSE(std::signbit(to_doubles(*y)[1]));
      return outputs(y);
    });
}

TEST(SparseCode, NanIsTheLargest) {
  std::vector<double> values = normals("x", 64);
  values[37] = -std::numeric_limits<double>::quiet_NaN();
  values[5] = std::numeric_limits<double>::infinity();
  const TestTensor x(DType::kF32, {1, 64}, values);
  const SparseCode code{1.0 / 64, 64};
  for_each_kernel([&](Ctx& ctx) {
    TestTensor index(DType::kU16, {1, 1}), sent(DType::kF32, {1, 1});
    select_largest(ctx, code, index, x, {});
    gather_selected(ctx, code, sent, index, x, {});
    EXPECT_EQ(index->as<uint16_t>()[0], 37);
    EXPECT_TRUE(std::isnan(sent->as<float>()[0]));
    return outputs(index);
  });
}

TEST(SparseCode, KeepsTheNearestNumberAndAtLeastOne) {
  EXPECT_EQ(kept_in_block({0.01, 4096}, 4096), 41);
  EXPECT_EQ(kept_in_block({0.001, 4096}, 40), 1);
  EXPECT_EQ(kept_in_block({1.0, 4096}, 17), 17);
  EXPECT_EQ(kept_in_row({0.5, 4}, 6), 3);
  EXPECT_EQ(kept_in_row({0.5, 4}, 8), 4);
  EXPECT_EQ(kept_in_row({0.5, 4}, 0), 0);
}

TEST(SparseCode, RefusesOtherCodesAndShapes) {
  Ctx ctx(1, "test");
  const TestTensor x(DType::kF32, {2, 20}), index(DType::kU16, {2, 10}),
      values(DType::kF32, {2, 10});
  const TestTensor narrow(DType::kU16, {2, 9}), wide(DType::kF64, {2, 10});
  EXPECT_THROW(select_largest(ctx, {0.0, 20}, index, x, {}), Error);
  EXPECT_THROW(select_largest(ctx, {1.1, 20}, index, x, {}), Error);
  EXPECT_THROW(select_largest(ctx, {std::nan(""), 20}, index, x, {}), Error);
  EXPECT_THROW(select_largest(ctx, {0.5, 0}, index, x, {}), Error);
  EXPECT_THROW(select_largest(ctx, {0.5, kMaxSparseBlock + 1}, index, x, {}), Error);
  EXPECT_THROW(select_largest(ctx, {0.5, 20}, narrow, x, {}), Error);
  EXPECT_THROW(select_random(ctx, {0.5, 20}, narrow, 20, {}), Error);
  EXPECT_THROW(select_random(ctx, {0.5, 10}, index, 20, {.stride = 1}), Error);
  EXPECT_THROW(gather_selected(ctx, {0.5, 20}, wide, index, x, {}), Error);
  EXPECT_THROW(gather_selected(ctx, {0.5, 20}, values, index, x, values), Error);
  EXPECT_THROW(scatter_selected(ctx, {0.5, 20}, x, wide, index, false), Error);
}

TEST(SparseCode, PlanningWritesNothing) {
  const TestTensor x(DType::kF32, {2, 20}, normals("x", 40)), index(DType::kU16, {2, 10});
  const TestTensor values(DType::kF32, {2, 10}), y(DType::kF32, {2, 20});
  expect_plannable(
      [&](Ctx& ctx) {
        select_largest(ctx, {0.5, 20}, index, x, {});
        select_random(ctx, {0.5, 20}, index, 20, {});
        gather_selected(ctx, {0.5, 20}, values, index, x, y);
        scatter_selected(ctx, {0.5, 20}, y, values, index, false);
      },
      {&index, &values, &y});
}

}  // namespace
}  // namespace trireme::test::test_sparse_code
