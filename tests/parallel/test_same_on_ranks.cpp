#include <gtest/gtest.h>

#include <atomic>

#include "parallel/agree.h"
#include "parallel/comm/world.h"
#include "parallel/same_on_ranks.h"

namespace trireme::test_same_on_ranks {
namespace {

TEST(SameOnRanks, NamesWhatDiffersAndWhoHasWhich) {
  const RankFacts common = {{"lr", "0.001"}, {"seed", "1"}};
  EXPECT_EQ(differing_facts({}), "");
  EXPECT_EQ(differing_facts({common}), "");
  EXPECT_EQ(differing_facts({common, common, common}), "");
  RankFacts other = common;
  other["lr"] = "0.1";
  EXPECT_EQ(differing_facts({common, other, common}), "\n  lr: 0.001 on ranks 0, 2; 0.1 on rank 1");
  other = common;
  other["--dtype"] = "bf16";
  other.erase("seed");
  EXPECT_EQ(differing_facts({other, common}),
            "\n  --dtype: bf16 on rank 0; not given on rank 1"
            "\n  seed: not given on rank 0; 1 on rank 1");
}

TEST(SameOnRanks, KeepsMessagesShort) {
  std::vector<RankFacts> ranks(1000);
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    for (int fact = 0; fact < 100; ++fact)
      ranks[rank][std::to_string(fact)] = std::string(10'000, rank == 0 ? 'a' : 'b');
  const std::string said = differing_facts(ranks);
  EXPECT_LT(said.size(), 6000u);
  EXPECT_NE(said.find("... on rank 0; "), std::string::npos) << said;
  EXPECT_NE(said.find("on ranks 1, 2, 3, 4, 5, 6, 7, 8 and 991 more"), std::string::npos) << said;
  EXPECT_NE(said.find("... 80 more"), std::string::npos) << said;
}

TEST(SameOnRanks, EveryRankFailsAlike) {
  std::atomic<int> failed = 0;
  for (const bool differs : {false, true})
    run_threads(3, [&](Communicator& world) {
      RankFacts facts = {{"a", "1"}};
      if (differs && world.rank() == 2) facts["a"] = "2";
      try {
        require_same_on_ranks(world, facts);
        EXPECT_FALSE(differs);
      } catch (const ReportedError& e) {
        EXPECT_NE(std::string(e.what()).find("a: 1 on ranks 0, 1; 2 on rank 2"), std::string::npos)
            << e.what();
        ++failed;
      }
    });
  EXPECT_EQ(failed, 3);
}

}  // namespace
}  // namespace trireme::test_same_on_ranks
