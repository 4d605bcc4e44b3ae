// Negative control: the comparison detects a single lost collective in a run of hundreds.
#include <gtest/gtest.h>

#include "tests/layouts/faulty_ranks.h"

namespace trireme::test::test_dropped {
namespace {

struct Dropped {
  const char* what;
  LayoutCase layout;
  Fault lost;
};

LayoutCase with_zero(int stage) { return layout(2, 1, 1, 1, stage); }

LayoutCase with_heads(int cp, int ulysses) {
  LayoutCase c = layout(1, 1, 1, cp);
  c.sizes.cp_ulysses = ulysses;
  return c;
}

LayoutCase with_experts(int ep, int etp) {
  LayoutCase c = layout(2, 1, 1, 1);
  c.sizes.ep = ep;
  c.sizes.etp = etp;
  c.experts = "mixtral";
  return c;
}

std::vector<Dropped> all_dropped() {
  using K = CommKind;
  LayoutCase sequence = layout(1, 2, 1, 1), tied = layout(1, 1, 2, 1);
  sequence.sizes.sequence_parallel = true;
  tied.llama = false;
  return {
      {"tp, forward", layout(1, 2, 1, 1), {"tp group", K::kAllReduce, 3}},
      {"tp, gradient of shared key/value heads", layout(1, 4, 1, 1), {"kv copies", K::kAllReduce}},
      {"sp, tokens gathered", sequence, {"tp group", K::kAllGather, 2}},
      {"sp, sums scattered", sequence, {"tp group", K::kReduceScatter, 2}},
      {"sp, gradients of norms", sequence, {"tp group", K::kAllReduce, 0}},
      {"pp, hidden state", layout(1, 1, 2, 1), {"pp group", K::kRecv, 5, 1}},
      {"pp, its gradient", layout(1, 1, 2, 1), {"pp group", K::kRecv, 5, 0}},
      {"pp, tied embedding", tied, {"tied embedding", K::kAllReduce}},
      {"cp, block of keys", layout(1, 1, 1, 2), {"cp group", K::kSend, 1}},
      {"cp, heads", with_heads(2, 2), {"cp group 0 of 1, heads", K::kAllToAll, 1}},
      {"cp, heads of a2a+p2p", with_heads(4, 2), {"cp group 0 of 1, heads", K::kAllToAll, 1}},
      {"cp, keys of a2a+p2p", with_heads(4, 2), {"cp group 0 of 1, ring", K::kSend, 1}},
      {"ep, rows", with_experts(2, 1), {"ep group", K::kAllToAll, 2}},
      {"etp, rows", with_experts(1, 2), {"etp group", K::kSend, 2}},
      {"edp, gradients", with_experts(1, 1), {"edp group", K::kAllReduce, 1}},
      {"dp, gradients", with_zero(0), {"dp x cp", K::kAllReduce, 1}},
      {"ZeRO 1, gradients", with_zero(1), {"dp x cp", K::kReduceScatter, 1}},
      {"ZeRO 1, weights", with_zero(1), {"dp x cp", K::kAllGather}},
      {"ZeRO 2, gradients", with_zero(2), {"dp x cp", K::kReduceScatter, 1}},
      {"ZeRO 2, weights", with_zero(2), {"dp x cp", K::kAllGather}},
      {"ZeRO 3, gradients", with_zero(3), {"dp x cp", K::kReduceScatter, 1}},
      {"ZeRO 3, weights", with_zero(3), {"dp x cp", K::kAllGather, 3}},
  };
}

TEST(Dropped, OneCollectiveOfAnyDimensionIsNoticed) {
  std::map<std::string, LayoutResult> references;
  for (const Dropped& dropped : all_dropped()) {
    SCOPED_TRACE(dropped.what);
    const LayoutCase one = reference_of(dropped.layout);
    const auto [want, fresh] = references.try_emplace(one.name());
    if (fresh) want->second = run_layout(one);
    Fault never = dropped.lost;
    never.number = int64_t{1} << 40;
    for (const bool happens : {false, true}) {
      std::atomic<int> count = 0;
      const LayoutResult got =
          run_layout(dropped.layout, with_fault(happens ? dropped.lost : never, count));
      const std::string difference = layout_difference(got, want->second, dropped.layout.dtype);
      EXPECT_EQ(difference.empty(), !happens) << difference;
      const int concerned = dropped.lost.kind == CommKind::kRecv ? 1 : dropped.layout.ranks();
      EXPECT_EQ(count.load(), happens ? concerned : 0);
    }
  }
}

}  // namespace
}  // namespace trireme::test::test_dropped
