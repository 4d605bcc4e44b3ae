// Operations queued in NCCL: the order of every pipeline schedule's messages and of a step's
// collectives, no host synchronization, and the handling of failures.
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <mutex>

#include "engine/ops/context.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/make_schedule.h"
#include "parallel/pipeline/schedule_file.h"
#include "tests/cuda/device_ranks.h"
#include "tests/emulator/emulator.h"
#include "tests/emulator/nccl_records.h"

namespace trireme {
namespace {

using emulator::NcclRecord;
using test::DeviceRank;
using test::DeviceTensor;
using test::TestTensor;

// Content of every byte that model chunk `chunk` sends to the next one (gradient: to the previous
// one).
int message_byte(int chunk, int micro_batch, bool gradient) {
  return (gradient ? 128 : 1) + (chunk * 31 + micro_batch * 7) % 120;
}

// Fills what it sends and keeps what it receives, all on the main stream; the host reads at the
// end.
class DeviceStage final : public PipelineStage {
 public:
  static constexpr int64_t kBytes = 96;

  DeviceStage(Ctx& ctx, const Schedule& schedule, int rank)
      : ctx_(ctx),
        schedule_(schedule),
        rank_(rank),
        visits_(int64_t{schedule.chunks} * schedule.micro_batches),
        log_("log", 2 * visits_ * kBytes, Memory::kDevice) {
    cuda::fill_bytes(*ctx.gpu, ctx.gpu->main, log_.data(), 0, log_.bytes());
  }

  Activation forward(int chunk, int micro_batch, Activation input) override {
    keep(chunk, micro_batch, false, input);
    const bool last = model_chunk(chunk) == schedule_.model_chunks() - 1;
    return last ? Activation() : made(chunk, micro_batch, false);
  }
  Activation backward_input(int chunk, int micro_batch, Activation d_output) override {
    keep(chunk, micro_batch, true, d_output);
    return model_chunk(chunk) == 0 ? Activation() : made(chunk, micro_batch, true);
  }
  void backward_weight(int, int) override {}
  Activation allocate_message(int, int, bool) override {
    return ctx_.allocate("hidden", DType::kU8, {kBytes});
  }

  // "" or the messages that did not arrive. Synchronizes.
  std::string check() const {
    std::string got(static_cast<size_t>(log_.bytes()), '\0');
    cuda::download(*ctx_.gpu, got.data(), log_.data(), log_.bytes());
    for (int chunk = 0; chunk < schedule_.chunks; ++chunk)
      for (int m = 0; m < schedule_.micro_batches; ++m)
        for (const bool gradient : {false, true}) {
          const int from = model_chunk(chunk) + (gradient ? 1 : -1);
          const bool arrives =
              from >= 0 && from < schedule_.model_chunks() && (!gradient || schedule_.trains());
          const int want = arrives ? message_byte(from, m, gradient) : 0;
          const std::string bytes =
              got.substr(static_cast<size_t>(slot(chunk, m, gradient)), kBytes);
          if (bytes != std::string(kBytes, static_cast<char>(want)))
            return concat("rank ", rank_, ", chunk ", chunk, ", micro-batch ", m, ", gradient ",
                          gradient, ": not ", want);
        }
    return "";
  }

 private:
  int model_chunk(int chunk) const { return schedule_.model_chunk(rank_, chunk); }
  int64_t slot(int chunk, int micro_batch, bool gradient) const {
    const int64_t visit = int64_t{chunk} * schedule_.micro_batches + micro_batch;
    return (visit + (gradient ? visits_ : 0)) * kBytes;
  }
  void keep(int chunk, int micro_batch, bool gradient, const Activation& input) {
    if (!input.present() || ctx_.planning()) return;
    cuda::copy_async(*ctx_.gpu, ctx_.gpu->main, log_.data() + slot(chunk, micro_batch, gradient),
                     input->raw(), kBytes);
  }
  Activation made(int chunk, int micro_batch, bool gradient) {
    Activation output = allocate_message(chunk, micro_batch, gradient);
    if (!ctx_.planning())
      cuda::fill_bytes(*ctx_.gpu, ctx_.gpu->main, output->raw(),
                       message_byte(model_chunk(chunk), micro_batch, gradient), kBytes);
    return output;
  }

  Ctx& ctx_;
  const Schedule& schedule_;
  int rank_;
  int64_t visits_;
  Buffer log_;
};

// Messages of a rank in the order in which its program posts them, as the host transport receives
// them.
std::vector<std::string> posted_by(const RankProgram& program) {
  std::vector<std::string> order;
  for (const ProgramStep& step : program.steps) {
    for (const int receive : step.post)
      order.push_back(concat("Recv ", program.receives[static_cast<size_t>(receive)].peer));
    if (step.send >= 0)
      order.push_back(concat("Send ", program.sends[static_cast<size_t>(step.send)].peer));
  }
  return order;
}

// Messages that NCCL received from the rank with this device.
std::vector<std::string> recorded_by(const std::vector<NcclRecord>& records, int device) {
  std::map<std::pair<int, int>, int> devices;  // (communicator, rank in it) -> device
  for (const NcclRecord& r : records) devices[{r.comm, r.rank}] = r.device;
  std::vector<std::string> order;
  for (const NcclRecord& r : records)
    if (r.device == device) order.push_back(concat(r.op, " ", devices[{r.comm, r.peer}]));
  return order;
}

// All ranks are present before and after.
void clear_records(Communicator& world) {
  world.barrier();
  if (world.rank() == 0) emulator::reset_nccl();
  world.barrier();
}

void run_schedule(DeviceRank& here, const Schedule& schedule) {
  const int rank = here.world.rank();
  Ctx ctx(1, "pipeline test", &here.gpu);
  DeviceStage stage(ctx, schedule, rank);
  const PipelineExecutor executor(schedule, here.world);
  ctx.arena.begin_planning();
  executor.run(stage, ctx);
  const ArenaPlan plan = ctx.arena.end_planning();
  ctx.arena.reserve(plan.capacity);
  clear_records(here.world);
  const auto before = emulator::counters().synchronized();
  // Twice without host synchronization, so that memory is reused while messages are in flight.
  for (int pass = 0; pass < 2; ++pass) {
    ctx.arena.begin_step(plan);
    executor.run(stage, ctx);
    ctx.arena.end_step();
  }
  here.world.barrier();
  const bool nccl = here.world.device_backend() != "staged";
  if (nccl) {
    EXPECT_EQ(emulator::counters().synchronized(), before) << schedule.name;
    const std::vector<std::string> once = posted_by(executor.program());
    std::vector<std::string> want = once;
    want.insert(want.end(), once.begin(), once.end());
    EXPECT_EQ(recorded_by(emulator::nccl_records(), rank), want)
        << schedule.name << ", rank " << rank << " of " << schedule.stages;
  }
  here.world.barrier();  // before any rank reads: reading synchronizes
  EXPECT_EQ(stage.check(), "") << schedule.name << " of " << schedule.stages << " stages, "
                               << schedule.chunks << " chunks, " << schedule.micro_batches;
}

std::vector<Schedule> all_schedules(int ranks) {
  std::vector<Schedule> schedules;
  for (const ScheduleKind kind : {ScheduleKind::kGPipe, ScheduleKind::k1F1B, ScheduleKind::kZbH1,
                                  ScheduleKind::kZbH2, ScheduleKind::kForwardOnly})
    for (const int m : {1, 2 * ranks + 1}) schedules.push_back(make_schedule(kind, ranks, 1, m));
  for (const int chunks : {2, 3}) {
    schedules.push_back(make_schedule(ScheduleKind::kInterleaved, ranks, chunks, 2 * ranks));
    schedules.push_back(make_schedule(ScheduleKind::kForwardOnly, ranks, chunks, ranks + 1));
  }
  return schedules;
}

TEST(Nccl, EverySchedulesMessagesArriveInTheOrderOfTheHosts) {
  for (const int ranks : {2, 3, 4})
    test::run_device_ranks(ranks, ranks, DeviceBackend::kNccl, [&](DeviceRank& here) {
      for (const Schedule& schedule : all_schedules(ranks)) run_schedule(here, schedule);
    });
  EXPECT_EQ(emulator::nccl_open_comms(), 0);
}

TEST(Staged, EverySchedulesMessagesArrive) {
  test::run_device_ranks(3, 1, DeviceBackend::kStaged, [&](DeviceRank& here) {
    for (const Schedule& schedule : all_schedules(3)) run_schedule(here, schedule);
  });
}

TEST(Nccl, MessagesOutOfOrderAreRefused) {
  for (const int ranks : {2, 3, 4, 6})
    for (const Schedule& schedule : all_schedules(ranks))
      EXPECT_EQ(check_message_order(make_programs(schedule)), "") << schedule.name;
  // The second stage starts with the second micro-batch.
  const Schedule custom = parse_schedule(
      R"({"version": 1, "stages": 2, "micro_batches": 2, "ranks": [
          ["F0", "F1", "B1", "B0"], ["F1", "B1", "F0", "B0"]]})",
      "custom");
  EXPECT_NE(check_message_order(make_programs(custom)), "");
  EXPECT_THROW(
      test::run_device_ranks(2, 2, DeviceBackend::kNccl,
                             [&](DeviceRank& here) { PipelineExecutor(custom, here.world); }),
      InputError);
}

// A step with data and tensor parallelism: every operation of one rank in the order of its start,
// on one stream, without host synchronization.
TEST(Nccl, AStepIsQueuedInOrderAndTheHostWaitsForNothing) {
  test::run_device_ranks(4, 4, DeviceBackend::kNccl, [](DeviceRank& here) {
    Communicator& world = here.world;
    const int rank = world.rank();
    const auto tp = world.split(rank / 2, rank, "tp"), dp = world.split(rank % 2, rank, "dp");
    const DeviceTensor hidden(here.gpu, *TestTensor(DType::kBF16, {16})),
        gradient(here.gpu, *TestTensor(DType::kF32, {7})),
        weights(here.gpu, *TestTensor(DType::kBF16, {8})),
        block(here.gpu, *TestTensor(DType::kBF16, {4})),
        counts(here.gpu, *TestTensor(DType::kF32, {2})),
        theirs(here.gpu, *TestTensor(DType::kF32, {2}));
    clear_records(world);
    const auto before = emulator::counters().synchronized();
    tp->all_gather(*weights, *block);
    const Work reduction = dp->reduce_scatter_v_async(*gradient);
    tp->reduce_scatter(*block, *weights);
    tp->send_recv(*counts, 1 - tp->rank(), *theirs, 1 - tp->rank());
    reduction.wait();
    dp->all_gather_v(*weights);
    dp->broadcast(*gradient, 1);
    tp->all_to_all(*weights, (*hidden).slice(0, 0, 8));
    world.barrier();
    EXPECT_EQ(emulator::counters().synchronized(), before);
    std::vector<std::string> order;
    for (const NcclRecord& r : emulator::nccl_records()) {
      if (r.device != rank) continue;
      EXPECT_EQ(r.stream, here.gpu.comm.raw);
      order.push_back(concat(r.op, " ", r.count, " ", r.peer));
    }
    const int peer = 1 - tp->rank();
    const std::vector<std::string> want{"AllGather 4 -1",
                                        "Reduce 3 0",
                                        "Reduce 4 1",
                                        "ReduceScatter 4 -1",
                                        concat("Send 2 ", peer),
                                        concat("Recv 2 ", peer),
                                        "AllGather 4 -1",
                                        "Broadcast 7 1",
                                        "Send 4 0",
                                        "Recv 4 0",
                                        "Send 4 1",
                                        "Recv 4 1"};
    EXPECT_EQ(order, want) << "rank " << rank;
    world.barrier();
  });
}

// Errors by rank of a run in which at least one rank fails.
std::vector<std::string> failing_ranks(int ranks, const std::function<void(DeviceRank&)>& rank,
                                       bool check_operations = false) {
  std::mutex mutex;
  std::vector<std::string> errors(static_cast<size_t>(ranks));
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THROW(test::run_device_ranks(
                   ranks, ranks, DeviceBackend::kNccl,
                   [&](DeviceRank& here) {
                     try {
                       rank(here);
                     } catch (const Error& error) {
                       const std::lock_guard lock(mutex);
                       errors[static_cast<size_t>(here.world.rank())] = error.what();
                       throw;
                     }
                   },
                   check_operations),
               Error);
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  EXPECT_LT(spent.count(), 60);  // less than the timeout for a peer
  return errors;
}

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "\"" << text << "\" without \"" << part << "\"";
}

TEST(NcclFailure, ARankThatThrowsEndsWhatTheOthersWaitFor) {
  const auto errors = failing_ranks(3, [](DeviceRank& here) {
    const DeviceTensor data(here.gpu, *TestTensor(DType::kF32, {5}));
    here.world.all_reduce(*data);
    if (here.world.rank() == 1) throw Error("the batch is on fire");
    here.world.all_reduce(*data);
    EXPECT_EQ(data.bytes().size(), 20u);  // would never return
    here.world.all_reduce(*data);
  });
  EXPECT_EQ(errors[1], "the batch is on fire");
  for (const size_t rank : {0, 2}) {
    expect_part(errors[rank], "rank 1");
    expect_part(errors[rank], "all_reduce");
  }
}

// NCCL fails on one rank while the others connect to it: they do not block in a call, and report
// its name.
TEST(NcclFailure, ARankThatCannotMakeACommunicatorEndsTheOthers) {
  const auto errors = failing_ranks(3, [](DeviceRank& here) {
    here.world.barrier();
    if (here.world.rank() == 0) emulator::fail_nccl_init(1);
    here.world.barrier();
    const auto group = here.world.split(0, here.world.rank(), "late");
  });
  emulator::fail_nccl_init(-1);
  expect_part(errors[1], "making the communicator of group \"late\": NCCL failed");
  for (const size_t rank : {0, 2}) {
    expect_part(errors[rank], "rank 1 stopped because of an error");
    expect_part(errors[rank], "group \"late\"");
  }
  EXPECT_EQ(emulator::nccl_open_comms(), 0);
}

TEST(NcclFailure, ACommunicatorIsMadeWithItsGroup) {
  test::run_device_ranks(3, 3, DeviceBackend::kNccl, [](DeviceRank& here) {
    here.world.barrier();
    EXPECT_EQ(emulator::nccl_open_comms(), 3);
    here.world.barrier();
    const auto pair = here.world.split(here.world.rank() / 2, 0, "pair");  // and a group of one
    here.world.barrier();
    EXPECT_EQ(emulator::nccl_open_comms(), 5);
    here.world.barrier();
  });
  EXPECT_EQ(emulator::nccl_open_comms(), 0);
}

TEST(NcclFailure, OperationsThatDifferAreReported) {
  const auto errors = failing_ranks(2, [](DeviceRank& here) {
    const DeviceTensor data(here.gpu, *TestTensor(DType::kF32, {4 + here.world.rank()}));
    here.world.all_reduce(*data);
    (void)data.bytes();
    // Both ranks get here, and detect the failure within the watchdog's interval.
    for (;;) here.world.check_alive();
  });
  for (const std::string& error : errors) {
    expect_part(error, "NCCL reports for group \"world\": invalid usage");
    expect_part(error, "AllReduce of 5 elements");
  }
}

TEST(NcclFailure, ChecksNameOperationsThatDifferBeforeTheyAreQueued) {
  const auto errors = failing_ranks(
      2,
      [](DeviceRank& here) {
        const DeviceTensor data(here.gpu, *TestTensor(DType::kF32, {4}));
        here.world.all_reduce(*data);
        here.world.all_reduce(*data, here.world.rank() == 0 ? ReduceOp::kSum : ReduceOp::kMax);
      },
      true);
  expect_part(errors[0] + errors[1], "while rank 0 calls all_reduce");
}

}  // namespace
}  // namespace trireme
