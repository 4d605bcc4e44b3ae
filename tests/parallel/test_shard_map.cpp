#include <gtest/gtest.h>

#include "engine/core/error.h"
#include "parallel/parameter_store.h"
#include "parallel/shard_map.h"

namespace trireme::test_shard_map {
namespace {

using Parts = std::vector<std::array<int64_t, 3>>;  // begin, end, offset

Parts parts_of(const ShardMap& map, const FlatRange& range) {
  Parts found;
  map.for_each(range, [&](const FlatRange& part, int64_t offset) {
    found.push_back({part.begin, part.end, offset});
  });
  return found;
}

TEST(ShardMap, StoresPiecesOneBehindTheOther) {
  const ShardMap map({{10, 20}, {20, 20}, {30, 31}, {40, 50}});
  EXPECT_EQ(map.size(), 21);
  EXPECT_EQ(parts_of(map, {0, 100}), (Parts{{10, 20, 0}, {30, 31, 10}, {40, 50, 11}}));
  EXPECT_EQ(parts_of(map, {15, 42}), (Parts{{15, 20, 5}, {30, 31, 10}, {40, 42, 11}}));
  EXPECT_EQ(parts_of(map, {20, 30}), Parts{});
  EXPECT_EQ(parts_of(map, {50, 90}), Parts{});
  for (const int64_t flat : {10, 19, 30, 40, 49}) EXPECT_EQ(map.flat(map.offset(flat)), flat);
  EXPECT_THROW(map.offset(20), Error);
  EXPECT_THROW(map.offset(50), Error);
  EXPECT_THROW(map.flat(21), Error);
  EXPECT_THROW(ShardMap({{0, 5}, {4, 6}}), Error);
}

// Index of an element of a box in the whole tensor, computed step by step.
int64_t index_of(const ParameterSpec& spec, int64_t element) {
  const Shape local = spec.local_shape();
  std::vector<int64_t> at(static_cast<size_t>(local.rank()));
  for (int d = local.rank(); d-- > 0; element /= local[d])
    at[static_cast<size_t>(d)] = element % local[d];
  int64_t index = 0;
  for (int d = 0; d < local.rank(); ++d) {
    const auto i = static_cast<size_t>(d);
    const int64_t start = spec.box.extent.empty() ? 0 : spec.box.start[i];
    index = index * spec.shape[d] + start + at[i];
  }
  return index;
}

TEST(ParameterSpec, ElementIndexIsThatOfTheWholeTensor) {
  for (const TensorBox& box : {TensorBox{}, TensorBox{{2, 0}, {3, 8}}, TensorBox{{0, 3}, {6, 4}},
                               TensorBox{{1, 2}, {4, 5}}}) {
    const ParameterSpec spec{.name = "w", .shape = Shape{6, 8}, .box = box};
    for (int64_t offset : {int64_t{0}, int64_t{5}}) {
      ElementIndex index = spec.element_index();
      index.offset = offset;
      for (int64_t i = 0; i + offset < spec.local_shape().numel(); ++i)
        ASSERT_EQ(index.of(i), index_of(spec, i + offset));
    }
  }
  const ParameterSpec expert{.name = "w", .shape = Shape{4, 3, 6}, .box = {{1, 0, 2}, {2, 3, 3}}};
  for (int64_t i = 0; i < 18; ++i) EXPECT_EQ(expert.element_index().of(i), index_of(expert, i));
}

}  // namespace
}  // namespace trireme::test_shard_map
