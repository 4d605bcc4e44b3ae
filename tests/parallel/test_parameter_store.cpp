#include <gtest/gtest.h>

#include "engine/core/error.h"
#include "engine/ops/context.h"
#include "parallel/parameter_store.h"

namespace trireme::test_parameter_store {
namespace {

ParameterList list() {
  ParameterList parameters;
  parameters.add({.name = "a", .shape = Shape{7, 10}, .init = InitKind::kNormal, .init_std = 1});
  parameters.add(
      {.name = "b", .shape = Shape{33}, .init = InitKind::kNormal, .init_std = 1, .block = 1});
  parameters.add({.name = "c",
                  .shape = Shape{40, 5},
                  .init = InitKind::kNormal,
                  .init_std = 1,
                  .block = 1,
                  .partial = PartialSum::kTiedStages});
  parameters.add({.name = "d", .shape = Shape{9}, .init = InitKind::kOnes, .block = 1});
  return parameters;
}

TEST(ParameterStore, RanksOwnEveryElementOnce) {
  const ParameterStore whole(list(), DType::kF32);
  // A table that another stage also holds is divided separately from its neighbours.
  ASSERT_EQ(whole.tiles().size(), 4u);
  EXPECT_EQ(whole.tiles()[2].range.begin, whole.range(2).begin);
  EXPECT_EQ(whole.tiles()[2].range.size(), 256);  // 200 plus padding
  for (const int n : {1, 2, 3, 7}) {
    std::vector<int> owners(static_cast<size_t>(whole.flat_size()), 0);
    for (int i = 0; i < n; ++i) {
      const ParameterStore store(list(), DType::kF32, {3, {n, i}, {n, i}});
      store.owned().for_each({0, store.flat_size()}, [&](const FlatRange& part, int64_t) {
        for (int64_t at = part.begin; at < part.end; ++at) ++owners[static_cast<size_t>(at)];
      });
      EXPECT_EQ(store.value_bytes(), 4 * store.owned().size());
    }
    EXPECT_EQ(std::ranges::count(owners, 1), whole.flat_size()) << n;
  }
}

TEST(ParameterStore, AShardStartsWithTheValuesOfTheWhole) {
  Ctx ctx(1, "test");
  ParameterStore whole(list(), DType::kF32);
  whole.allocate(ctx, false);
  whole.initialize(ctx, 3);
  for (int i = 0; i < 3; ++i) {
    ParameterStore shard(list(), DType::kF32, {3, {3, i}, {3, i}});
    shard.allocate(ctx, false);
    shard.initialize(ctx, 3);
    for (ParamHandle h = 0; h < 4; ++h)
      shard.value_map().for_each(shard.range(h), [&](const FlatRange& part, int64_t at) {
        for (int64_t e = 0; e < part.size(); ++e)
          ASSERT_EQ(shard.flat_values().as<float>()[at + e],
                    whole.flat_values().as<float>()[part.begin + e]);
      });
  }
}

}  // namespace
}  // namespace trireme::test_parameter_store
