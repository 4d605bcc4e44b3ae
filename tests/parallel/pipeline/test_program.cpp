// Messages derived from a schedule: none is missing, and no rank waits forever without buffers.
#include <gtest/gtest.h>

#include <random>

#include "engine/core/error.h"
#include "parallel/pipeline/check_schedule.h"
#include "parallel/pipeline/make_schedule.h"
#include "parallel/pipeline/program.h"
#include "parallel/pipeline/schedule_file.h"

namespace trireme::test_program {
namespace {

void expect_runs(const Schedule& schedule) {
  const std::vector<RankProgram> programs = make_programs(schedule);
  EXPECT_EQ(check_programs(programs), "") << schedule.name << " " << schedule.stages << " "
                                          << schedule.chunks << " " << schedule.micro_batches;
  int64_t sends = 0, receives = 0;
  for (const RankProgram& program : programs) {
    sends += std::ssize(program.sends);
    receives += std::ssize(program.receives);
    size_t posted = 0, retired = program.retire_last.size();
    for (const ProgramStep& step : program.steps) {
      posted += step.post.size();
      retired += step.retire.size();
    }
    EXPECT_EQ(posted, program.receives.size());
    EXPECT_EQ(retired, program.sends.size());
  }
  EXPECT_EQ(sends, message_count(schedule));
  EXPECT_EQ(receives, message_count(schedule));
}

TEST(Program, EveryKindAndSizeRuns) {
  for (int p = 1; p <= 5; ++p)
    for (int m = 1; m <= 11; ++m) {
      for (const ScheduleKind kind :
           {ScheduleKind::kGPipe, ScheduleKind::k1F1B, ScheduleKind::kZbH1, ScheduleKind::kZbH2})
        expect_runs(make_schedule(kind, p, 1, m));
      for (int v = 1; v <= 3; ++v) {
        expect_runs(make_schedule(ScheduleKind::kForwardOnly, p, v, m));
        if (m % p == 0) expect_runs(make_schedule(ScheduleKind::kInterleaved, p, v, m));
      }
    }
}

// Any feasible order: random ranks take turns, and each runs a random operation whose inputs are
// ready.
Schedule random_schedule(std::mt19937& random) {
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  const int p = pick(1, 5), v = pick(1, 3), m = pick(1, 6);
  Schedule schedule{ScheduleKind::kCustom,
                    "random",
                    p,
                    v,
                    m,
                    std::vector<std::vector<Instruction>>(static_cast<size_t>(p))};
  const int chunks = p * v;
  // 0: nothing; 1: forward; 2: backward_input; 3: all done.
  std::vector<int> state(static_cast<size_t>(chunks * m));
  const auto at = [&](int chunk, int i) -> int& {
    return state[static_cast<size_t>(chunk * m + i)];
  };
  for (int left = 2 * chunks * m; left > 0;) {
    const int chunk = pick(0, chunks - 1), i = pick(0, m - 1);
    int& now = at(chunk, i);
    auto& order = schedule.ranks[static_cast<size_t>(chunk % p)];
    const auto add = [&](InstructionKind kind) { order.push_back({kind, chunk / p, i}); };
    if (now == 0 && (chunk == 0 || at(chunk - 1, i) >= 1)) {
      add(InstructionKind::kForward);
      now = 1;
      --left;
    } else if (now == 1 && (chunk + 1 == chunks || at(chunk + 1, i) >= 2)) {
      const bool whole = pick(0, 1) == 0;
      add(whole ? InstructionKind::kBackward : InstructionKind::kBackwardInput);
      now = whole ? 3 : 2;
      if (whole) --left;
    } else if (now == 2) {
      add(InstructionKind::kBackwardWeight);
      now = 3;
      --left;
    }
  }
  return schedule;
}

TEST(Program, EveryPossibleOrderRuns) {
  std::mt19937 random(4711);
  for (int n = 0; n < 300; ++n) {
    const Schedule schedule = random_schedule(random);
    check_schedule(schedule, "random");
    expect_runs(schedule);
  }
}

// Largest number of sends that a rank has not retired yet: memory beyond the activations.
int max_unretired(const RankProgram& program) {
  int now = 0, most = 0;
  for (const ProgramStep& step : program.steps) {
    now -= static_cast<int>(step.retire.size());
    if (step.send >= 0) most = std::max(most, ++now);
  }
  return most;
}

TEST(Program, SendsAreRetiredSoon) {
  for (const auto& program : make_programs(make_schedule(ScheduleKind::k1F1B, 4, 1, 16)))
    EXPECT_LE(max_unretired(program), 3);
}

TEST(Program, WrongProgramsAreNoticed) {
  const Schedule schedule = make_schedule(ScheduleKind::kZbH1, 3, 1, 4);
  const std::vector<RankProgram> good = make_programs(schedule);
  ASSERT_EQ(check_programs(good), "");
  {
    std::vector<RankProgram> wrong = good;
    wrong[1].receives[0].tag += 100;
    EXPECT_NE(check_programs(wrong), "");
  }
  {
    std::vector<RankProgram> wrong = good;
    std::swap(wrong[1].receives[0].tag, wrong[1].receives[1].tag);
    EXPECT_NE(check_programs(wrong), "");
  }
  {
    // Rank 0 retires its send of F1 before the forward that rank 1 does before F1: it can continue
    // because the receive is posted one instruction ahead.
    const Schedule crossed = parse_schedule(
        R"({"version": 1, "stages": 2, "chunks": 2, "micro_batches": 2, "ranks": [
            ["F0.0", "F1.0", "F0.1", "F1.1", "B0.1", "B1.1", "B0.0", "B1.0"],
            ["F0.0", "F0.1", "F1.0", "F1.1", "B0.1", "B1.1", "B0.0", "B1.0"]]})",
        "crossed");
    std::vector<RankProgram> wrong = make_programs(crossed);
    ASSERT_EQ(check_programs(wrong), "");
    ASSERT_EQ(wrong[0].steps[2].retire.back(), 1);
    ASSERT_EQ(wrong[1].steps[1].post.size(), 1u);
    wrong[1].steps[2].post.insert(wrong[1].steps[2].post.begin(), wrong[1].steps[1].post[0]);
    wrong[1].steps[1].post.clear();
    EXPECT_NE(check_programs(wrong).find("waits forever"), std::string::npos);
  }
}

}  // namespace
}  // namespace trireme::test_program
