#include <gtest/gtest.h>

#include <map>
#include <random>

#include "engine/io/tensor_box.h"

namespace trireme::test_tensor_box {
namespace {

// Element by element: logical flat index -> offset from the start of the part's range.
std::map<int64_t, int64_t> elements_of(const std::vector<int64_t>& shape, const TensorPart& part) {
  std::map<int64_t, int64_t> elements;
  for (int64_t i = part.begin; i < part.end; ++i) {
    int64_t rest = i, flat = 0, stride = 1;
    for (size_t d = shape.size(); d-- > 0;) {
      flat += (part.box.start[d] + rest % part.box.extent[d]) * stride;
      rest /= part.box.extent[d];
      stride *= shape[d];
    }
    elements[flat] = i - part.begin;
  }
  return elements;
}

TensorPart random_part(const std::vector<int64_t>& shape, std::mt19937& random) {
  TensorPart part;
  for (const int64_t dim : shape) {
    // Often the whole dimension, because that merges rows.
    int64_t a = 0, b = dim;
    if (random() % 2 == 0) {
      a = static_cast<int64_t>(random()) % dim;
      b = a + 1 + static_cast<int64_t>(random()) % (dim - a);
    }
    part.box.start.push_back(a);
    part.box.extent.push_back(b - a);
  }
  const int64_t n = part.box.numel();
  part.begin = static_cast<int64_t>(random()) % n;
  part.end = part.begin + static_cast<int64_t>(random()) % (n - part.begin + 1);
  return part;
}

TEST(TensorBox, RunsAreExactlyTheCommonElementsAndMaximal) {
  std::mt19937 random(7);
  const std::vector<std::vector<int64_t>> shapes = {{},        {1},          {13},           {4, 5},
                                                    {3, 1, 7}, {2, 3, 4, 5}, {2, 2, 3, 2, 3}};
  int64_t nonempty = 0;
  for (const auto& shape : shapes) {
    for (int trial = 0; trial < 300; ++trial) {
      const TensorPart first = random_part(shape, random), second = random_part(shape, random);
      ASSERT_EQ(check_box(first.box, shape), "");
      const auto a = elements_of(shape, first), b = elements_of(shape, second);
      std::map<int64_t, std::pair<int64_t, int64_t>> want, got;
      for (const auto& [flat, offset] : a) {
        if (b.count(flat) != 0) want[flat] = {offset, b.at(flat)};
      }
      std::map<int64_t, int64_t> flat_of_first;
      for (const auto& [flat, offset] : a) flat_of_first[offset] = flat;
      int64_t last_end = -1;
      for_each_common_run(shape, first, second, [&](const CommonRun& run) {
        EXPECT_GT(run.length, 0);
        const int64_t flat = flat_of_first.at(run.first_offset);
        EXPECT_GT(flat, last_end) << "not maximal or not in order";
        last_end = flat + run.length;
        for (int64_t i = 0; i < run.length; ++i) {
          got[flat + i] = {run.first_offset + i, run.second_offset + i};
        }
      });
      EXPECT_EQ(got, want) << first.box.str() << " " << second.box.str();
      EXPECT_EQ(common_elements(shape, first, second), static_cast<int64_t>(want.size()));
      nonempty += want.empty() ? 0 : 1;
    }
  }
  EXPECT_GT(nonempty, 300);
}

TEST(TensorBox, ManyRowsAreSkippedNotWalked) {
  // A column strip of 2^40 rows intersected with one element near its end.
  const std::vector<int64_t> shape = {int64_t{1} << 40, 64};
  const TensorPart strip{{{0, 16}, {int64_t{1} << 40, 16}}, 0, int64_t{1} << 44};
  const int64_t row = (int64_t{1} << 40) - 2;
  const TensorPart element{whole_box(shape), row * 64 + 20, row * 64 + 21};
  int64_t runs = 0;
  for_each_common_run(shape, strip, element, [&](const CommonRun& run) {
    ++runs;
    EXPECT_EQ(run.length, 1);
    EXPECT_EQ(run.first_offset, row * 16 + 4);
    EXPECT_EQ(run.second_offset, 0);
  });
  EXPECT_EQ(runs, 1);
}

TEST(TensorBox, BadBoxesAreNamed) {
  const std::vector<int64_t> shape = {4, 6};
  EXPECT_EQ(check_box({{0, 0}, {4, 6}}, shape), "");
  EXPECT_EQ(check_box({{3, 5}, {1, 1}}, shape), "");
  for (const TensorBox& bad :
       {TensorBox{{0}, {4}}, TensorBox{{0, 0}, {4}}, TensorBox{{-1, 0}, {2, 6}},
        TensorBox{{0, 0}, {5, 6}}, TensorBox{{4, 0}, {1, 6}}, TensorBox{{0, 0}, {0, 6}},
        TensorBox{{1, 0}, {INT64_MAX, 6}}, TensorBox{{INT64_MAX, 0}, {1, 6}}}) {
    EXPECT_NE(check_box(bad, shape), "") << bad.start.size();
  }
  EXPECT_NE(check_box(whole_box({INT64_MAX, 2}), {INT64_MAX, 2}), "");
}

}  // namespace
}  // namespace trireme::test_tensor_box
