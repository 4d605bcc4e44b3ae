#include <gtest/gtest.h>

#include <functional>

#include "engine/ops/rows/elementwise.h"
#include "parallel/comm/world.h"
#include "parallel/moe/token_dispatcher.h"
#include "tests/support/compare.h"

namespace trireme::test::test_token_dispatcher {
namespace {

using Values = std::vector<double>;

size_t at(int64_t i) { return static_cast<size_t>(i); }

// Number of rows of rank r of the plane for expert e.
using Routing = std::function<int64_t(int64_t r, int64_t e)>;

struct Case {
  const char* name;
  Routing rows;
};

const std::vector<Case> kCases = {
    {"even", [](int64_t, int64_t) { return 2; }},
    {"uneven", [](int64_t r, int64_t e) { return (3 * r + 5 * e + 1) % 7; }},
    {"everything to one", [](int64_t r, int64_t e) { return e == 1 ? 9 + r : 0; }},
    {"nothing to one", [](int64_t r, int64_t e) { return e == 0 ? 0 : 1 + r % 3; }},
    {"nothing", [](int64_t, int64_t) { return 0; }},
    {"one rank has all", [](int64_t r, int64_t e) { return r == 0 ? e + 4 : 0; }},
};

constexpr int64_t kExperts = 5;
constexpr int64_t kColumns = 3;

// Value of row n of expert e on rank r, in column c.
double element(int64_t r, int64_t e, int64_t n, int64_t c) {
  return static_cast<double>(10000 * r + 1000 * e + 10 * n + c);
}

struct Plane {
  std::unique_ptr<Communicator> ep, etp;
};
Plane plane_of(Communicator& world, int ep, int etp) {
  Plane p;
  const int r = world.rank();
  p.ep = world.split(r % etp, r / etp, "ep");
  p.etp = world.split(r / etp, r % etp, "etp");
  TRIREME_CHECK(p.ep->size() == ep && p.etp->size() == etp, "the plane");
  return p;
}

// Dispatches, multiplies expert e's rows by (e + 1), with each etp rank contributing its part of
// the sum, and combines; counts the rounds and compares the bytes with the table of counts.
void check_dispatcher(Communicator& world, int ep, int etp, const Case& c, int64_t bound,
                      int64_t expected_rounds) {
  const int r = world.rank();
  const Plane plane = plane_of(world, ep, etp);
  const TokenDispatcher dispatcher(plane.ep.get(), plane.etp.get(), kExperts);
  Ctx ctx(1, "test");
  std::vector<int64_t> counts;
  Values rows, want;
  int64_t remote = 0, n = 0;
  const RowRange held = dispatcher.local_experts();
  for (int64_t e = 0; e < kExperts; ++e) {
    counts.push_back(c.rows(r, e));
    n += counts.back();
    if (e < held.begin || e >= held.end) remote += counts.back();
    for (int64_t i = 0; i < counts.back(); ++i)
      for (int64_t k = 0; k < kColumns; ++k) {
        rows.push_back(element(r, e, i, k));
        want.push_back(rows.back() * static_cast<double>(e + 1));
      }
  }
  const TestTensor tc({kExperts}, counts), tr(DType::kF64, {n, kColumns}, rows);
  const TestTensor home(DType::kF64, {n, kColumns});
  plane.ep->reset_traffic();
  const ExpertRoute route = dispatcher.plan_dispatch(ctx, tc, bound);
  EXPECT_EQ(plane.ep->traffic()[CommKind::kAllToAll].sent_bytes, 0);
  EXPECT_EQ(route.pairs, n);
  EXPECT_EQ(route.remote, remote);
  if (expected_rounds > 0) {
    EXPECT_EQ(std::ssize(route.rounds), expected_rounds) << c.name;
  }
  const TestTensor received(DType::kF64, {bound, kColumns});
  int64_t seen = 0;
  for (size_t round = 0; round < route.rounds.size(); ++round) {
    const ExpertRound& part = route.rounds[round];
    dispatcher.dispatch(ctx, received, tr, route, round);
    ASSERT_LE(part.rows(), bound);
    seen += part.rows();
    auto* x = received->as<double>();
    for (int64_t e = 0; e < held.size(); ++e)
      for (int64_t i = part.offsets[at(e)] * kColumns; i < part.offsets[at(e + 1)] * kColumns;
           ++i) {
        EXPECT_EQ(static_cast<int64_t>(x[i]) / 1000 % 10, held.begin + e) << "another's row";
        x[i] *= static_cast<double>(held.begin + e + 1) / etp;
      }
    dispatcher.combine(ctx, home, received, route, round);
  }
  EXPECT_CLOSE(*home, want, tolerance(DType::kF64, etp));
  // Everything that ranks of the plane send here arrives exactly once.
  int64_t expected = 0;
  for (int64_t s = 0; s < int64_t{ep} * etp; ++s)
    for (int64_t e = held.begin; e < held.end; ++e) expected += c.rows(s, e);
  EXPECT_EQ(seen, expected);
  // Dispatch: this rank's remote pairs. Combine: the pairs received from other ep indices.
  int64_t returned = 0;
  for (int64_t s = r % etp; s < int64_t{ep} * etp; s += etp)
    for (int64_t e = held.begin; e < held.end; ++e) returned += s == r ? 0 : c.rows(s, e);
  EXPECT_EQ(plane.ep->traffic()[CommKind::kAllToAll].sent_bytes,
            (remote + returned) * kColumns * 8);
}

TEST(TokenDispatcher, RowsReachTheirExpertsAndComeBack) {
  for (const auto& sizes : {std::pair{1, 1}, {2, 1}, {1, 2}, {2, 2}, {4, 1}, {1, 4}, {3, 1}})
    for (const Case& c : kCases) {
      const int ep = sizes.first, etp = sizes.second;
      SCOPED_TRACE(concat("ep ", ep, " etp ", etp, " ", c.name));
      run_threads(ep * etp, [&](Communicator& world) {
        check_dispatcher(world, ep, etp, c, 400, 1);
        check_dispatcher(world, ep, etp, c, 7, 0);
        check_dispatcher(world, ep, etp, c, 1, 0);
      });
    }
}

TEST(TokenDispatcher, AllRanksAgreeOnTheRounds) {
  // Expert 1 gets 9 + 10 + 11 + 12 rows, of which a round takes 10.
  run_threads(4, [&](Communicator& world) { check_dispatcher(world, 2, 2, kCases[2], 10, 5); });
}

TEST(TokenDispatcher, ASingleRankNeedsNoGroups) {
  const TokenDispatcher dispatcher(nullptr, nullptr, 3);
  Ctx ctx(1, "test");
  EXPECT_EQ(dispatcher.default_bound(10, 2), 20) << "everything, and not more";
  const TestTensor counts({3}, std::vector<int64_t>{2, 0, 1});
  const TestTensor rows(DType::kBF16, {3, 2}, {1, 2, 3, 4, 5, 6}), got(DType::kBF16, {2, 2});
  const TestTensor home(DType::kBF16, {3, 2});
  const ExpertRoute route = dispatcher.plan_dispatch(ctx, counts, 2);
  ASSERT_EQ(std::ssize(route.rounds), 2);
  EXPECT_EQ(route.rounds[1].offsets, (std::vector<int64_t>{0, 0, 0, 1}));
  for (size_t r = 0; r < 2; ++r) {
    dispatcher.dispatch(ctx, got, rows, route, r);
    dispatcher.combine(ctx, home, got, route, r);
  }
  EXPECT_SAME_BITS(*home, *rows);
}

TEST(TokenDispatcher, PlansItsBuffersWithoutCommunication) {
  run_threads(2, [](Communicator& world) {
    const Plane plane = plane_of(world, 1, 2);
    const TokenDispatcher dispatcher(plane.ep.get(), plane.etp.get(), 2);
    Ctx ctx(1, "test");
    const Shape bound{8, 3}, mine{4, 3};
    const auto step = [&](const ConstTensor& counts) {
      const Activation got = ctx.allocate("got", DType::kF32, bound);
      const Activation rows = ctx.allocate("rows", DType::kF32, mine);
      if (!ctx.planning()) fill_zero(ctx, rows);
      const ExpertRoute route = dispatcher.plan_dispatch(ctx, counts, bound[0]);
      dispatcher.dispatch(ctx, got, rows, route, 0);
      dispatcher.combine(ctx, rows, got, route, 0);
    };
    const TestTensor counts({2}, std::vector<int64_t>{3, 1});
    // One rank alone: a collective would not return.
    if (world.rank() == 0) {
      ctx.arena.begin_planning();
      step(counts);
      EXPECT_GT(ctx.arena.end_planning().capacity, 0);
    }
    world.barrier();
    ctx.arena.begin_planning();
    step(counts);
    const ArenaPlan plan = ctx.arena.end_planning();
    ctx.arena.reserve(plan.capacity);
    ctx.arena.begin_step(plan);
    step(counts);
    ctx.arena.end_step();
  });
}

TEST(TokenDispatcher, BoundIsTwiceTheEvenShare) {
  run_threads(4, [](Communicator& world) {
    const Plane plane = plane_of(world, 2, 2);
    // 8 tokens per rank, 2 experts each: on average 8 * 2 rows for an ep index from each etp index.
    EXPECT_EQ(TokenDispatcher(plane.ep.get(), plane.etp.get(), 8).default_bound(8, 2), 64);
    // With 2 experts each ep index has one: no token has two pairs there.
    EXPECT_EQ(TokenDispatcher(plane.ep.get(), plane.etp.get(), 2).default_bound(8, 2), 32);
    EXPECT_THROW(TokenDispatcher(plane.ep.get(), plane.etp.get(), 1), InputError);
  });
}

}  // namespace
}  // namespace trireme::test::test_token_dispatcher
