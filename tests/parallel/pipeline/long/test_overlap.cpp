// Real ranks whose work is to sleep: their idle time must match the formula.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "parallel/comm/world.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/make_schedule.h"
#include "parallel/pipeline/simulate.h"

namespace trireme::test_overlap {
namespace {

using std::chrono::duration;
using std::chrono::steady_clock;

constexpr int kStages = 4, kMicroBatches = 8;
constexpr size_t kRounds = 3, kMaxRounds = 9;
constexpr double kAllowed = 0.03;  // of the time: three percent
constexpr int64_t kElements = 1000;

// Sleeping needs no core, so that four ranks are realistic on any machine.
class SleepingStage final : public PipelineStage {
 public:
  SleepingStage(Ctx& ctx, const Schedule& schedule, int rank, const StageTimes& times)
      : ctx_(ctx), schedule_(schedule), rank_(rank), times_(times) {}

  Activation forward(int chunk, int micro_batch, Activation) override {
    sleep(times_.forward);
    const bool last = schedule_.model_chunk(rank_, chunk) + 1 == schedule_.model_chunks();
    return last ? Activation() : allocate_message(chunk, micro_batch, false);
  }
  Activation backward_input(int chunk, int micro_batch, Activation) override {
    sleep(times_.backward_input);
    const bool first = schedule_.model_chunk(rank_, chunk) == 0;
    return first ? Activation() : allocate_message(chunk, micro_batch, true);
  }
  void backward_weight(int, int) override { sleep(times_.backward_weight); }
  Activation allocate_message(int, int, bool) override {
    return ctx_.allocate("hidden", DType::kF32, {kElements});
  }
  double busy() const { return busy_; }

 private:
  // A late wake-up is the machine's fault and counts as work: the schedule is what is measured.
  void sleep(double seconds) {
    const auto start = steady_clock::now();
    std::this_thread::sleep_for(duration<double>(seconds));
    busy_ += duration<double>(steady_clock::now() - start).count();
  }
  Ctx& ctx_;
  const Schedule& schedule_;
  int rank_;
  StageTimes times_;
  double busy_ = 0;
};

// Idle share of the ranks' time: until the end of the slowest rank, and for each rank from its
// first instruction to its last, which is zero for ZB-H2.
struct Idle {
  double of_total = 0, inside = 0;
  // Maximum over ranks of the share of time that neither the stage nor the executor's idle time
  // accounts for.
  double unexplained = 0;
  std::vector<int> peaks;
};

Idle measure(const Schedule& schedule, const StageTimes& times) {
  Idle idle;
  idle.peaks.resize(static_cast<size_t>(schedule.stages));
  CommOptions options;
  options.timeout_s = 120;
  run_threads(
      schedule.stages,
      [&](Communicator& group) {
        Ctx ctx(1, "pipeline test");
        SleepingStage stage(ctx, schedule, group.rank(), times);
        const PipelineExecutor executor(schedule, group);
        group.barrier();
        const PipelineReport report = executor.run(stage, ctx);
        const double makespan = group.all_reduce_scalar(report.seconds, ReduceOp::kMax);
        const double busy = group.all_reduce_scalar(stage.busy(), ReduceOp::kSum);
        const double own = report.seconds - report.first_seconds;
        const double owns = group.all_reduce_scalar(own, ReduceOp::kSum);
        idle.peaks[static_cast<size_t>(group.rank())] = report.peak_in_flight;
        const double unexplained = std::abs(report.seconds - stage.busy() - report.idle_seconds);
        const double most = group.all_reduce_scalar(unexplained / report.seconds, ReduceOp::kMax);
        if (group.rank() != 0) return;
        idle.of_total = 1 - busy / (makespan * schedule.stages);
        idle.inside = 1 - busy / owns;
        idle.unexplained = most;
      },
      options);
  return idle;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

double literature(ScheduleKind kind, int chunks) {
  const double p = kStages, m = kMicroBatches;
  if (kind == ScheduleKind::kZbH1) return (p - 1) / (3 * m + p - 1);
  if (kind == ScheduleKind::kZbH2) return 0;
  return (p - 1) / (chunks * m + p - 1);
}

void expect_formula(ScheduleKind kind, int chunks) {
  const Schedule schedule = make_schedule(kind, kStages, chunks, kMicroBatches);
  const StageTimes times{0.1, 0.1, 0.1, 0};
  const Timeline simulated = simulate(schedule, times);
  const double want = literature(kind, chunks);
  std::vector<double> measured;
  double unexplained = 1;
  // More rounds where other processes disturbed the first ones.
  while (measured.size() < kRounds ||
         (measured.size() < kMaxRounds &&
          (std::abs(median(measured) - want) > kAllowed || unexplained > kAllowed))) {
    const Idle idle = measure(schedule, times);
    measured.push_back(kind == ScheduleKind::kZbH2 ? idle.inside : idle.of_total);
    unexplained = std::min(unexplained, idle.unexplained);
    for (size_t r = 0; r < idle.peaks.size(); ++r)
      ASSERT_EQ(idle.peaks[r], simulated.ranks[r].peak_in_flight) << r;
  }
  const double got = median(measured);
  std::printf("%s: idle %.2f %%, formula %.2f %%\n", schedule.name.c_str(), 100 * got, 100 * want);
  EXPECT_NEAR(got, want, kAllowed) << schedule.name;
  // The executor's idle time equals the time that the stage did not use.
  EXPECT_LT(unexplained, kAllowed) << schedule.name;
}

TEST(Overlap, GPipe) { expect_formula(ScheduleKind::kGPipe, 1); }
TEST(Overlap, OneForwardOneBackward) { expect_formula(ScheduleKind::k1F1B, 1); }
TEST(Overlap, Interleaved) { expect_formula(ScheduleKind::kInterleaved, 2); }
TEST(Overlap, ZbH1) { expect_formula(ScheduleKind::kZbH1, 1); }
TEST(Overlap, ZbH2) { expect_formula(ScheduleKind::kZbH2, 1); }

}  // namespace
}  // namespace trireme::test_overlap
