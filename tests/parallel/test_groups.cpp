#include <gtest/gtest.h>

#include "parallel/comm/world.h"
#include "parallel/groups.h"
#include "tests/parallel/layout_sizes.h"

namespace trireme::test_groups {
namespace {

using test::sizes_of;

TEST(Groups, EachDimHasItsCommunicator) {
  run_threads(8, [](Communicator& world) {
    const ParallelSizes sizes = sizes_of(2, 1, 2, 2, 2, 2);
    const Groups groups(world, sizes, 2);
    const Layout& l = groups.layout;
    const auto check = [](const Communicator& group, const GroupCoord& place) {
      EXPECT_EQ(group.size(), place.size) << group.name();
      EXPECT_EQ(group.rank(), place.index) << group.name();
    };
    check(*groups.tp, l.tp);
    check(*groups.cp, l.cp);
    check(*groups.dp, l.dp);
    check(*groups.pp, l.pp);
    check(*groups.ep, l.ep);
    check(*groups.etp, l.etp);
    check(*groups.edp, l.edp);
    check(*groups.data, l.data);
    check(*groups.kv, {2, l.tp.index});
    check(*groups.tied, {2, l.pp.index});
    // tp neighbours are neighbouring ranks; stages are half the world apart.
    EXPECT_EQ(groups.tp->world_rank(0), world.rank() / 2 * 2);
    EXPECT_EQ(groups.tied->world_rank(1), world.rank() % 4 + 4);
    EXPECT_EQ(groups.tp->name().substr(0, 9), "tp group ");
  });
}

}  // namespace
}  // namespace trireme::test_groups
