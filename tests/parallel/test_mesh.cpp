#include <gtest/gtest.h>

#include "parallel/comm/world.h"
#include "parallel/mesh.h"
#include "tests/support/compare.h"

namespace trireme {
namespace {

TEST(ProcessMesh, RanksAndIndicesAreInverse) {
  const ProcessMesh mesh({2, 3, 1, 4}, 24);
  EXPECT_EQ(mesh.rank_of({1, 2, 0, 3}), (1 * 3 + 2) * 4 + 3);
  for (int rank = 0; rank < 24; ++rank)
    EXPECT_EQ(
        mesh.rank_of({mesh.index(rank, MeshDim::kPipeline), mesh.index(rank, MeshDim::kData),
                      mesh.index(rank, MeshDim::kContext), mesh.index(rank, MeshDim::kTensor)}),
        rank);
}

TEST(ProcessMesh, MembersDifferInOneDim) {
  const ProcessMesh mesh({2, 3, 1, 4}, 24);
  EXPECT_EQ(mesh.members(5, MeshDim::kTensor), (std::vector<int>{4, 5, 6, 7}));
  EXPECT_EQ(mesh.members(5, MeshDim::kData), (std::vector<int>{1, 5, 9}));
  EXPECT_EQ(mesh.members(5, MeshDim::kPipeline), (std::vector<int>{5, 17}));
  EXPECT_EQ(mesh.members(5, MeshDim::kContext), (std::vector<int>{5}));
  EXPECT_EQ(mesh.group_name(5, MeshDim::kData), "dp group 1 of 8");
  EXPECT_EQ(mesh.group_name(17, MeshDim::kData), "dp group 5 of 8");
  EXPECT_EQ(ProcessMesh({1, 4, 1, 1}, 4).group_name(2, MeshDim::kData), "dp group 0 of 1");
}

TEST(ProcessMesh, WrongLayoutsNameTheNumbers) {
  try {
    ProcessMesh({1, 3, 1, 1}, 4);
    FAIL() << "accepted";
  } catch (const InputError& e) {
    EXPECT_STREQ(e.what(),
                 "the parallel layout pp=1 x dp=3 x cp=1 x tp=1 needs 3 ranks but the run has 4; "
                 "change the layout or start 3 ranks");
  }
  EXPECT_THROW(ProcessMesh({1, 0, 1, 1}, 1), InputError);
}

TEST(MeshGroups, EachDimHasItsCommunicator) {
  run_threads(6, [](Communicator& world) {
    const ProcessMesh mesh({1, 3, 1, 2}, 6);
    const MeshGroups groups(world, mesh);
    for (MeshDim dim : {MeshDim::kPipeline, MeshDim::kData, MeshDim::kContext, MeshDim::kTensor}) {
      Communicator& group = groups[dim];
      EXPECT_EQ(group.size(), mesh.size(dim));
      EXPECT_EQ(group.rank(), mesh.index(world.rank(), dim));
      EXPECT_EQ(group.name(), mesh.group_name(world.rank(), dim));
      int64_t sum = 0;
      for (int member : mesh.members(world.rank(), dim)) sum += member;
      EXPECT_EQ(group.all_reduce_scalar(int64_t{world.rank()}, ReduceOp::kSum), sum);
    }
  });
}

}  // namespace
}  // namespace trireme
