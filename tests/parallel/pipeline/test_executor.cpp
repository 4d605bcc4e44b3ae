// Every schedule on thread ranks, compared with one rank that does everything sequentially.
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <mutex>
#include <thread>

#include "parallel/comm/world.h"
#include "parallel/pipeline/make_schedule.h"
#include "parallel/pipeline/schedule_file.h"
#include "tests/parallel/pipeline/toy_stage.h"

namespace trireme::test_executor {
namespace {

using test::toy_reference;
using test::ToyResult;
using test::ToyStage;

CommOptions options() {
  CommOptions o;
  o.timeout_s = 120;
  return o;
}

TEST(Executor, EveryScheduleGivesTheNumbersOfOneRank) {
  for (const int ranks : {1, 2, 3, 4})
    run_threads(
        ranks, [](Communicator& group) { EXPECT_EQ(test::check_pipeline(group), ""); }, options());
}

TEST(Executor, ACustomScheduleRuns) {
  // 1F1B with all weight gradients of the last rank postponed.
  const Schedule schedule = parse_schedule(
      R"({"version": 1, "stages": 2, "micro_batches": 3, "ranks": [
          ["F0", "F1", "B0", "F2", "B1", "B2"],
          ["F0", "I0", "F1", "I1", "F2", "I2", "W2", "W1", "W0"]]})",
      "custom");
  run_threads(
      2,
      [&](Communicator& group) {
        Ctx ctx(1, "pipeline test");
        ToyStage stage(ctx, schedule, group.rank(), 1000);
        PipelineExecutor(schedule, group).run(stage, ctx);
        const ToyResult got = gather(group, stage.result()), want = toy_reference(schedule, 1000);
        EXPECT_EQ(got.loss, want.loss);
        EXPECT_EQ(got.d_weight[0], want.d_weight[0]);
        // Summed in another order.
        EXPECT_NEAR(got.d_weight[1], want.d_weight[1], 1e-12 * std::abs(want.d_weight[1]));
      },
      options());
}

// A stage runs ahead of a slow neighbour by no more than the schedule allows: sends do not block
// it, and its collectives with other ranks do not wait for the pipeline's messages.
class SlowStage final : public ToyStage {
 public:
  SlowStage(Ctx& ctx, const Schedule& schedule, Communicator& pipeline, Communicator& other)
      : ToyStage(ctx, schedule, pipeline.rank(), 20'000), ctx_(ctx), other_(other) {}

  Activation forward(int chunk, int micro_batch, Activation input) override {
    reduce();
    return ToyStage::forward(chunk, micro_batch, std::move(input));
  }
  void backward_weight(int chunk, int micro_batch) override {
    reduce();
    ToyStage::backward_weight(chunk, micro_batch);
  }

 private:
  void reduce() {
    if (!ctx_.planning()) other_.all_reduce_scalar(1.0, ReduceOp::kSum);
  }
  Ctx& ctx_;
  Communicator& other_;
};

// Two pipelines in parallel whose stages reduce with each other inside every micro-batch, as in
// tensor parallelism, and start asynchronous reductions, as for gradients.
TEST(Executor, PipelinesWhoseStagesReduceTogether) {
  for (const CommAlgorithm algorithm : {CommAlgorithm::kRing, CommAlgorithm::kShm}) {
    CommOptions o = options();
    o.algorithm = algorithm;
    run_threads(
        6,
        [](Communicator& world) {
          const auto pipeline = world.split(world.rank() % 2, world.rank(), "pp");
          const auto other = world.split(world.rank() / 2, world.rank(), "tp");
          const Schedule schedule = make_schedule(ScheduleKind::kZbH1, 3, 1, 7);
          Ctx ctx(1, "pipeline test");
          SlowStage stage(ctx, schedule, *pipeline, *other);
          const PipelineExecutor executor(schedule, *pipeline);
          double gradient = 1;
          const Work beside =
              other->all_reduce_async(Tensor(&gradient, DType::kF64, {1}), ReduceOp::kSum);
          executor.run(stage, ctx);
          beside.wait();
          EXPECT_EQ(gradient, 2);
          EXPECT_EQ(gather(*pipeline, stage.result()), toy_reference(schedule, 20'000));
        },
        o);
  }
}

class FailingStage final : public ToyStage {
 public:
  using ToyStage::ToyStage;
  void backward_weight(int, int micro_batch) override {
    if (micro_batch == 1) throw Error("the stage is on fire");
  }
};

TEST(Executor, AStageThatThrowsEndsThePipeline) {
  const Schedule schedule = make_schedule(ScheduleKind::k1F1B, 3, 1, 6);
  std::mutex mutex;
  std::vector<std::string> errors(3);
  const auto start = std::chrono::steady_clock::now();
  const auto rank = [&](Communicator& group) {
    Ctx ctx(1, "pipeline test");
    FailingStage failing(ctx, schedule, group.rank(), 5000);
    ToyStage working(ctx, schedule, group.rank(), 5000);
    PipelineStage& stage = group.rank() == 1 ? static_cast<PipelineStage&>(failing) : working;
    try {
      PipelineExecutor(schedule, group).run(stage, ctx);
    } catch (const Error& e) {
      const std::lock_guard lock(mutex);
      errors[static_cast<size_t>(group.rank())] = e.what();
      throw;
    }
  };
  EXPECT_THROW(run_threads(3, rank, options()), Error);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 60);  // less than the timeout for a peer
  EXPECT_EQ(errors[1], "the stage is on fire");
  for (const size_t r : {0u, 2u})
    EXPECT_NE(errors[r].find("the stage is on fire"), std::string::npos) << errors[r];
}

// Throws while its receive of the first gradient is posted; that gradient waits for `over`.
class OpenStage final : public ToyStage {
 public:
  OpenStage(Ctx& ctx, const Schedule& schedule, int rank, std::shared_future<void> over)
      : ToyStage(ctx, schedule, rank, 5000), rank_(rank), over_(std::move(over)) {}
  Activation forward(int chunk, int micro_batch, Activation input) override {
    if (rank_ == 0 && micro_batch == 1) throw Error("the stage is on fire");
    return ToyStage::forward(chunk, micro_batch, std::move(input));
  }
  Activation backward_input(int chunk, int micro_batch, Activation d_output) override {
    over_.wait_for(std::chrono::seconds(60));
    return ToyStage::backward_input(chunk, micro_batch, std::move(d_output));
  }

 private:
  int rank_;
  std::shared_future<void> over_;
};

// When run() has thrown, the memory of its messages may be released: no transfer may still write to
// it.
TEST(Executor, MessagesUnderWayEndBeforeTheirMemoryDoes) {
  const Schedule schedule = make_schedule(ScheduleKind::k1F1B, 2, 1, 4);
  std::promise<void> over;
  const std::shared_future<void> future = over.get_future().share();
  const auto rank = [&](Communicator& group) {
    Ctx ctx(1, "pipeline test");
    OpenStage stage(ctx, schedule, group.rank(), future);
    try {
      PipelineExecutor(schedule, group).run(stage, ctx);
    } catch (const Error&) {
      EXPECT_THROW(group.check_alive(), Error) << group.rank();
      if (group.rank() == 0) over.set_value();
      throw;
    }
  };
  EXPECT_THROW(run_threads(2, rank, options()), Error);
}

TEST(Executor, RefusesAGroupOfAnotherSize) {
  run_threads(2, [](Communicator& group) {
    EXPECT_THROW(PipelineExecutor(make_schedule(ScheduleKind::kGPipe, 3, 1, 2), group), Error);
  });
}

}  // namespace
}  // namespace trireme::test_executor
