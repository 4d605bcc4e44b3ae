// The simulator against the closed forms of the literature, exactly.
#include <gtest/gtest.h>

#include <random>

#include "engine/core/error.h"
#include "parallel/pipeline/check_schedule.h"
#include "parallel/pipeline/make_schedule.h"
#include "parallel/pipeline/simulate.h"

namespace trireme::test_simulate {
namespace {

constexpr ScheduleKind kTraining[] = {ScheduleKind::kGPipe, ScheduleKind::k1F1B,
                                      ScheduleKind::kInterleaved, ScheduleKind::kZbH1,
                                      ScheduleKind::kZbH2};

int uniform(std::mt19937& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}

struct Case {
  int p, v, m;
  StageTimes times;
};

// Whole numbers, so that sums are exact, within the range of the formulas.
Case random_case(ScheduleKind kind, std::mt19937& random) {
  Case c{uniform(random, 1, 8), 1, uniform(random, 1, 24), {}};
  c.times.forward = uniform(random, 1, 9);
  c.times.backward_input = uniform(random, 1, 9);
  c.times.backward_weight = uniform(random, 1, 9);
  if (kind == ScheduleKind::kInterleaved) {
    c.v = uniform(random, 1, 4);
    c.m = c.p * uniform(random, 1, 4);
  }
  if (kind == ScheduleKind::kZbH1 || kind == ScheduleKind::kZbH2) {
    const int k = kind == ScheduleKind::kZbH1 ? 1 : 2;
    c.m = uniform(random, 2 * c.p - 1, 24);
    c.times.backward_weight = uniform(random, 1, static_cast<int>(c.times.forward));
    c.times.backward_input =
        std::max(c.times.backward_input, k * c.times.backward_weight - c.times.forward);
  }
  return c;
}

TEST(Simulate, EqualsTheFormulasInThirtyRandomCasesOfEachKind) {
  std::mt19937 random(20231);
  for (const ScheduleKind kind : kTraining)
    for (int n = 0; n < 30; ++n) {
      const Case c = random_case(kind, random);
      const Schedule schedule = make_schedule(kind, c.p, c.v, c.m);
      const Timeline timeline = simulate(schedule, c.times);
      SCOPED_TRACE(concat(schedule.name, " p ", c.p, " v ", c.v, " m ", c.m, " F ", c.times.forward,
                          " B ", c.times.backward_input, " W ", c.times.backward_weight));
      for (int r = 0; r < c.p; ++r) {
        const Timeline::Rank& rank = timeline.ranks[static_cast<size_t>(r)];
        const IdleFormula formula = idle_formula(schedule, c.times, r);
        ASSERT_TRUE(formula.known && formula.exact);
        EXPECT_EQ(formula.inside ? rank.idle_inside : timeline.idle(r), formula.idle) << r;
        EXPECT_EQ(rank.peak_in_flight, peak_in_flight_formula(schedule, r)) << r;
      }
    }
}

// The same formulas as printed in the papers, so that an error in idle_formula() is detected.
TEST(Simulate, BubblesOfFourStagesAndEightMicroBatches) {
  const auto timeline = [](ScheduleKind kind, int v) {
    return simulate(make_schedule(kind, 4, v, 8), {});
  };
  EXPECT_DOUBLE_EQ(timeline(ScheduleKind::kGPipe, 1).idle_of_ideal(), 3.0 / 8);
  EXPECT_DOUBLE_EQ(timeline(ScheduleKind::k1F1B, 1).idle_of_ideal(), 3.0 / 8);
  EXPECT_DOUBLE_EQ(timeline(ScheduleKind::k1F1B, 1).idle_of_total(), 3.0 / 11);
  EXPECT_DOUBLE_EQ(timeline(ScheduleKind::kInterleaved, 2).idle_of_ideal(), 3.0 / 16);
  EXPECT_DOUBLE_EQ(timeline(ScheduleKind::kZbH1, 1).idle_of_total(), 3.0 / 27);
  EXPECT_EQ(timeline(ScheduleKind::kZbH2, 1).idle_inside_of_total(), 0);
  EXPECT_EQ(timeline(ScheduleKind::kGPipe, 1).ranks[2].peak_in_flight, 8);
  EXPECT_EQ(timeline(ScheduleKind::k1F1B, 1).ranks[2].peak_in_flight, 2);
  EXPECT_EQ(timeline(ScheduleKind::kZbH1, 1).ranks[2].peak_in_flight, 4);
  EXPECT_EQ(timeline(ScheduleKind::kZbH2, 1).ranks[2].peak_in_flight, 7);
}

// ZB-H2 has no bubble on any rank, but the last rank starts (p - 1) F late: a barrier of all ranks
// before the optimizer step waits that long.
TEST(Simulate, ZbH2WaitsOnlyAtABarrier) {
  const StageTimes times{4, 5, 3, 0};
  const Timeline timeline = simulate(make_schedule(ScheduleKind::kZbH2, 4, 1, 9), times);
  for (int r = 0; r < 4; ++r) EXPECT_GE(timeline.idle(r), 3 * times.forward) << r;
  // 4 + 5 > 2 * 3: some idle time remains inside, (p - 1 - r) times the difference.
  EXPECT_EQ(timeline.ranks[1].idle_inside, 2 * 3.0);
}

TEST(Simulate, EverySpanOfASmallCase) {
  const Schedule schedule = make_schedule(ScheduleKind::kGPipe, 2, 1, 2);
  const Timeline timeline = simulate(schedule, {1, 2, 1, 0.5});
  const std::vector<std::pair<double, double>> first = {{0, 1}, {1, 2}, {7, 10}, {10, 13}};
  const std::vector<std::pair<double, double>> last = {
      {1.5, 2.5}, {2.5, 3.5}, {3.5, 6.5}, {6.5, 9.5}};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(timeline.ranks[0].spans[i].start, first[i].first) << i;
    EXPECT_EQ(timeline.ranks[0].spans[i].end, first[i].second) << i;
    EXPECT_EQ(timeline.ranks[1].spans[i].start, last[i].first) << i;
    EXPECT_EQ(timeline.ranks[1].spans[i].end, last[i].second) << i;
  }
  EXPECT_EQ(timeline.makespan, 13);
  EXPECT_EQ(timeline.ranks[0].idle_inside, 5);
  EXPECT_EQ(timeline.idle(1), 5);
}

// A list scheduler that always runs a ready operation, backward first, with as many micro-batches
// in flight as ZB-H1, does not reach ZB-H1's bubble: the order matters, not only the rules.
Schedule greedy_zero_bubble(int p, int m) {
  Schedule schedule{ScheduleKind::kCustom,
                    "greedy",
                    p,
                    1,
                    m,
                    std::vector<std::vector<Instruction>>(static_cast<size_t>(p))};
  struct Rank {
    int f = 0, i = 0, w = 0;
  };
  std::vector<Rank> ranks(static_cast<size_t>(p)), before;
  for (bool moved = true; moved;) {
    moved = false;
    before = ranks;
    for (int r = 0; r < p; ++r) {
      auto& [f, i, w] = ranks[static_cast<size_t>(r)];
      auto& order = schedule.ranks[static_cast<size_t>(r)];
      const bool has_gradient = r + 1 == p ? i < before[static_cast<size_t>(r)].f
                                           : i < before[static_cast<size_t>(r) + 1].i;
      const bool has_input =
          f < m && f - w < p && (r == 0 || f < before[static_cast<size_t>(r) - 1].f);
      if (has_gradient && i < m)
        order.push_back({InstructionKind::kBackwardInput, 0, i++});
      else if (w < i)
        order.push_back({InstructionKind::kBackwardWeight, 0, w++});
      else if (has_input)
        order.push_back({InstructionKind::kForward, 0, f++});
      else
        continue;
      moved = true;
    }
  }
  return schedule;
}

TEST(Simulate, AGreedyOrderIsWorse) {
  const Schedule greedy = greedy_zero_bubble(4, 8);
  check_schedule(greedy, "greedy");
  const Timeline timeline = simulate(greedy, {});
  const double ours =
      simulate(make_schedule(ScheduleKind::kZbH1, 4, 1, 8), {}).ranks[0].idle_inside;
  EXPECT_EQ(ours, 3);
  EXPECT_GT(timeline.ranks[0].idle_inside, ours);
  EXPECT_LE(timeline.ranks[0].peak_in_flight, 4);
}

TEST(Simulate, OneLateInstructionShows) {
  Schedule schedule = make_schedule(ScheduleKind::k1F1B, 4, 1, 8);
  schedule.kind = ScheduleKind::kCustom;
  const double before = simulate(schedule, {}).makespan;
  // The last rank runs forward for two micro-batches before its first backward.
  std::swap(schedule.ranks[3][1], schedule.ranks[3][2]);
  check_schedule(schedule, "swapped");
  EXPECT_GT(simulate(schedule, {}).makespan, before);
}

TEST(Simulate, FewMicroBatchesAndOneRank) {
  for (const ScheduleKind kind : {ScheduleKind::kZbH1, ScheduleKind::kZbH2}) {
    const Schedule few = make_schedule(kind, 4, 1, 2);
    EXPECT_FALSE(idle_formula(few, {}, 0).exact);
    EXPECT_LT(simulate(few, {}).makespan,
              simulate(make_schedule(ScheduleKind::k1F1B, 4, 1, 2), {}).makespan);
  }
  const Timeline alone = simulate(make_schedule(ScheduleKind::kInterleaved, 1, 3, 2), {1, 1, 1, 5});
  EXPECT_EQ(alone.makespan, 18);
  EXPECT_EQ(alone.idle_of_total(), 0);
}

TEST(Simulate, ForwardOnlyKeepsNothing) {
  const Timeline timeline = simulate(make_schedule(ScheduleKind::kForwardOnly, 3, 2, 7), {});
  // Seven micro-batches in groups of three: 3 + 3 + 1 visits of both chunks, and two ranks to pass.
  EXPECT_EQ(timeline.ranks[0].busy, 14);
  EXPECT_EQ(timeline.ranks[2].peak_in_flight, 1);
}

}  // namespace
}  // namespace trireme::test_simulate
