// Every operation of a communicator on GPU tensors, compared bit by bit with the same on the host,
// over the NCCL stand-in and through host memory; also its counters, and that the host does not
// synchronize over NCCL.
#include <gtest/gtest.h>

#include <atomic>

#include "engine/core/random.h"
#include "parallel/comm/collectives/collectives.h"
#include "parallel/comm/world.h"
#include "tests/cuda/device_ranks.h"
#include "tests/emulator/emulator.h"
#include "tests/emulator/nccl_records.h"

namespace trireme {
namespace {

using test::bytes_of;
using test::DeviceRank;
using test::DeviceTensor;
using test::TestTensor;

TestTensor values(DType dtype, int64_t n, int rank) {
  std::vector<double> v = test::normals(concat("rank ", rank), n);
  if (!is_float(dtype))
    for (double& x : v) x = static_cast<double>(static_cast<int64_t>(x * 100));
  if (dtype == DType::kI32) return {Shape{n}, std::vector<int32_t>(v.begin(), v.end())};
  if (dtype == DType::kI64) return {Shape{n}, std::vector<int64_t>(v.begin(), v.end())};
  return {dtype, Shape{n}, v};
}

struct Size {
  DType dtype;
  int64_t n;
};

// Runs `op` on host tensors and on copies of them on the device.
class Both {
 public:
  Both(DeviceRank& here, const Size& size) : here_(here), size_(size) {}

  using Op = std::function<void(Communicator&, const Tensor& out, const Tensor& in)>;
  // out and in have this many elements; compares elements [begin, end) of out.
  void check(const std::string& what, int64_t out_n, int64_t in_n, const Op& op, int64_t begin = 0,
             int64_t end = -1) {
    const TestTensor out = values(size_.dtype, out_n, here_.world.rank() + 10);
    const TestTensor in = values(size_.dtype, in_n, here_.world.rank());
    const DeviceTensor device_out(here_.gpu, *out), device_in(here_.gpu, *in);
    here_.world.reset_traffic();
    op(here_.world, *out, *in);
    const Traffic wanted = here_.world.traffic();
    here_.world.reset_traffic();
    op(here_.world, *device_out, *device_in);
    const auto width = static_cast<size_t>(dtype_size(size_.dtype));
    const auto from = static_cast<size_t>(begin) * width;
    const auto count = static_cast<size_t>((end < 0 ? out_n : end) - begin) * width;
    EXPECT_TRUE(device_out.bytes().substr(from, count) == bytes_of(*out).substr(from, count))
        << what << " of " << size_.n << " " << text(size_.dtype) << ", rank " << here_.world.rank()
        << " of " << here_.world.size();
    const Traffic got = here_.world.traffic();
    for (size_t kind = 0; kind < kCommKinds; ++kind) {
      if (static_cast<CommKind>(kind) == CommKind::kControl) continue;
      EXPECT_EQ(got.counters[kind].calls, wanted.counters[kind].calls) << what;
      EXPECT_EQ(got.counters[kind].payload_bytes, wanted.counters[kind].payload_bytes) << what;
      EXPECT_EQ(got.counters[kind].sent_bytes, wanted.counters[kind].sent_bytes)
          << what << " of " << size_.n << ", rank " << here_.world.rank() << " of "
          << here_.world.size();
    }
  }

 private:
  DeviceRank& here_;
  Size size_;
};

void check_reductions(Both& both, int size, int rank, int64_t n) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin}) {
    both.check("all_reduce", n, 0,
               [&](Communicator& g, const Tensor& out, const Tensor&) { g.all_reduce(out, op); });
    both.check("reduce_scatter", n, n * size,
               [&](Communicator& g, const Tensor& out, const Tensor& in) {
                 g.reduce_scatter_async(out, in, op).wait();
               });
    const Piece own = piece_of(n, size, rank);
    both.check(
        "reduce_scatter_v", n, 0,
        [&](Communicator& g, const Tensor& out, const Tensor&) { g.reduce_scatter_v(out, op); },
        own.begin, own.end);
  }
  both.check("reduce_scatter in its place", n * size, 0,
             [&](Communicator& g, const Tensor& out, const Tensor&) {
               g.reduce_scatter(out.slice(0, rank * n, rank * n + n), out);
             });
}

void check_moves(Both& both, int size, int rank, int64_t n) {
  both.check("all_gather", n * size, n,
             [&](Communicator& g, const Tensor& out, const Tensor& in) { g.all_gather(out, in); });
  both.check("all_gather in its place", n * size, 0,
             [&](Communicator& g, const Tensor& out, const Tensor&) {
               g.all_gather_async(out, out.slice(0, rank * n, rank * n + n)).wait();
             });
  both.check("all_gather_v", n, 0,
             [&](Communicator& g, const Tensor& out, const Tensor&) { g.all_gather_v(out); });
  for (int root = 0; root < size; ++root)
    both.check("broadcast", n, 0,
               [&](Communicator& g, const Tensor& out, const Tensor&) { g.broadcast(out, root); });
  both.check("all_to_all", n * size, n * size,
             [&](Communicator& g, const Tensor& out, const Tensor& in) { g.all_to_all(out, in); });
  std::vector<int64_t> to, from;
  int64_t in_n = 0, out_n = 0;
  for (int r = 0; r < size; ++r) {
    in_n += to.emplace_back(rank + 2 * r);
    out_n += from.emplace_back(r + 2 * rank);
  }
  both.check("all_to_all_v", out_n, in_n,
             [&](Communicator& g, const Tensor& out, const Tensor& in) {
               g.all_to_all_v(out, from, in, to);
             });
  both.check("all_to_all_v beside others", out_n, in_n,
             [&](Communicator& g, const Tensor& out, const Tensor& in) {
               const Work work = g.all_to_all_v_async(out, from, in, to);
               g.broadcast(in.slice(0, 0, 0), 0);
               work.wait();
             });
  if (size == 1) return;
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  both.check("send_recv", n, n, [&](Communicator& g, const Tensor& out, const Tensor& in) {
    g.send_recv(in, next, out, previous, 7);
    g.send_recv_async(in, next, out, previous).wait();
  });
  both.check("send and recv", n, n, [&](Communicator& g, const Tensor& out, const Tensor& in) {
    if (rank == 0) g.send(in, 1);
    if (rank == 1) g.recv(out, 0);
  });
}

struct Way {
  DeviceBackend backend;
  bool one_gpu;
};

class DeviceComm : public testing::TestWithParam<Way> {
 protected:
  void run(int ranks, const std::function<void(DeviceRank&)>& rank) const {
    test::run_device_ranks(ranks, GetParam().one_gpu ? 1 : ranks, GetParam().backend, rank);
  }
};

TEST_P(DeviceComm, EveryOperationIsTheHosts) {
  const std::vector<Size> sizes{
      {DType::kF32, 0}, {DType::kF32, 1},  {DType::kF32, 5},  {DType::kF32, 12}, {DType::kF32, 103},
      {DType::kF64, 7}, {DType::kBF16, 9}, {DType::kF16, 24}, {DType::kI64, 3},  {DType::kI32, 8}};
  for (const int ranks : {1, 2, 3, 4})
    run(ranks, [&](DeviceRank& here) {
      for (const Size& size : sizes) {
        Both both(here, size);
        check_reductions(both, here.world.size(), here.world.rank(), size.n);
        check_moves(both, here.world.size(), here.world.rank(), size.n);
      }
    });
}

// Groups of half the ranks, and a group of one.
TEST_P(DeviceComm, GroupsOfAGroup) {
  run(4, [](DeviceRank& here) {
    const int rank = here.world.rank();
    const auto half = here.world.split(rank % 2, rank, "half");
    const auto alone = here.world.split(rank, 0, "alone");
    const TestTensor host(DType::kF64, {3}, {1.0 + rank, 2, 3});
    const DeviceTensor data(here.gpu, *host), copy(here.gpu, *host);
    const Work first = half->all_reduce_async(*data), second = here.world.all_reduce_async(*copy);
    second.wait();
    first.wait();
    alone->all_reduce(*copy);
    const double pair = rank % 2 == 0 ? 1 + 3 : 2 + 4;
    EXPECT_EQ(data.bytes(), bytes_of(*TestTensor(DType::kF64, {3}, {pair, 4, 6})));
    EXPECT_EQ(copy.bytes(), bytes_of(*TestTensor(DType::kF64, {3}, {10, 8, 12})));
  });
}

// An operation sees the work queued on the main stream before it, and work queued after wait() sees
// its result. Without wait() it would not, because the emulator's streams run only when necessary.
TEST_P(DeviceComm, StreamsWaitForEachOther) {
  run(2, [](DeviceRank& here) {
    const TestTensor ones(DType::kF32, {64}, std::vector<double>(64, 1.0));
    const DeviceTensor data(here.gpu, *TestTensor(DType::kF32, {64})), source(here.gpu, *ones),
        result(here.gpu, *ones);
    const auto copy = [&](const Tensor& to, const Tensor& from) {
      cuda::copy_async(here.gpu, here.gpu.main, to.raw(), from.raw(), to.bytes());
    };
    for (int step = 0; step < 3; ++step) {
      copy(*data, *source);
      const Work work = here.world.all_reduce_async(*data);
      work.wait();
      copy(*source, *data);
      copy(*result, *data);
    }
    EXPECT_EQ(result.bytes(), bytes_of(*TestTensor(DType::kF32, {64}, std::vector<double>(64, 8))));
  });
}

TEST_P(DeviceComm, PostedMessagesTravelBesideOperations) {
  run(3, [](DeviceRank& here) {
    const int rank = here.world.rank(), next = (rank + 1) % 3, previous = (rank + 2) % 3;
    std::vector<MessagePath> paths;
    for (int r = 0; r < 3; ++r) paths.insert(paths.end(), {{r, (r + 1) % 3}, {r, (r + 2) % 3}});
    here.world.open_paths(paths);
    here.world.open_paths(paths);
    here.world.reset_traffic();
    const auto number = [](double x) { return TestTensor(DType::kF64, {2}, {x, -x}); };
    const DeviceTensor a(here.gpu, *number(rank)), b(here.gpu, *number(rank + 10)),
        from_previous(here.gpu, *number(0)), from_next(here.gpu, *number(0)),
        sum(here.gpu, *number(1));
    // Both receives first: on one stream this would wait forever.
    const Work r1 = here.world.post_recv(*from_previous, previous, 3);
    const Work r2 = here.world.post_recv(*from_next, next, 4);
    here.world.all_reduce(*sum);
    const Work s1 = here.world.post_send(*a, next, 3), s2 = here.world.post_send(*b, previous, 4);
    for (const Work& work : {s2, r2, r1, s1}) work.wait();
    EXPECT_EQ(from_previous.bytes(), bytes_of(*number(previous)));
    EXPECT_EQ(from_next.bytes(), bytes_of(*number(next + 10)));
    EXPECT_EQ(sum.bytes(), bytes_of(*number(3)));
    const Traffic traffic = here.world.traffic();
    EXPECT_EQ(traffic[CommKind::kSend].sent_bytes, 32);
    EXPECT_EQ(traffic[CommKind::kSend].calls, 2);
    EXPECT_EQ(traffic[CommKind::kRecv].payload_bytes, 32);
  });
}

std::string way_name(const testing::TestParamInfo<Way>& way) {
  if (way.param.one_gpu) return "OneGpu";
  return way.param.backend == DeviceBackend::kNccl ? "Nccl" : "Staged";
}

INSTANTIATE_TEST_SUITE_P(Ways, DeviceComm,
                         testing::Values(Way{DeviceBackend::kNccl, false},
                                         Way{DeviceBackend::kStaged, false},
                                         Way{DeviceBackend::kAuto, true}),
                         way_name);

TEST(DeviceCommChoice, AutoTakesNcclWhereEveryRankHasAGpu) {
  test::run_device_ranks(2, 2, DeviceBackend::kAuto, [](DeviceRank& here) {
    EXPECT_EQ(here.world.device_backend(), "nccl 2.28.9");
  });
  test::run_device_ranks(2, 1, DeviceBackend::kAuto, [](DeviceRank& here) {
    EXPECT_EQ(here.world.device_backend(), "staged");
  });
  EXPECT_EQ(emulator::nccl_open_comms(), 0);
}

// Allows NCCL to be tested on one GPU.
TEST(DeviceCommChoice, OneRankTakesNcclWhereItIsAskedFor) {
  for (const DeviceBackend backend : {DeviceBackend::kNccl, DeviceBackend::kAuto}) {
    emulator::reset_nccl();
    test::run_device_ranks(1, 1, backend, [&](DeviceRank& here) {
      const DeviceTensor data(here.gpu, *TestTensor(DType::kF32, {3}, {1, 2, 3}));
      const auto alone = here.world.split(0, 0, "alone");
      here.world.all_reduce(*data);
      alone->all_gather(*data, *data);
      EXPECT_EQ(data.bytes(), bytes_of(*TestTensor(DType::kF32, {3}, {1, 2, 3})));
      EXPECT_EQ(here.world.device_backend(),
                backend == DeviceBackend::kNccl ? "nccl 2.28.9" : "staged");
    });
    EXPECT_EQ(emulator::nccl_records().size(), backend == DeviceBackend::kNccl ? 2u : 0u);
  }
  EXPECT_EQ(emulator::nccl_open_comms(), 0);
}

TEST(DeviceCommChoice, WhyRanksAreStagedIsSaid) {
  emulator::set_devices(1);
  run_thread_worlds(2, [](World& world) {
    const std::unique_ptr<cuda::Context> gpu = cuda::open(0);
    const DeviceAttachment attached = world.world().attach(*gpu, DeviceBackend::kAuto);
    EXPECT_NE(world.device_note().find("rank 0"), std::string::npos) << world.device_note();
    EXPECT_NE(world.device_note().find("use GPU"), std::string::npos) << world.device_note();
  });
  run_thread_worlds(2, [](World& world) {
    const std::unique_ptr<cuda::Context> gpu = cuda::open(0);
    const DeviceAttachment attached = world.world().attach(*gpu, DeviceBackend::kStaged);
    EXPECT_EQ(world.device_note(), "");
  });
}

// Both where NCCL is requested and where the choice is free.
TEST(DeviceCommChoice, WhatGoesWrongOnOneRankIsHeardOfByAll) {
  emulator::set_devices(2);
  std::atomic<int> refused{0};
  run_thread_worlds(2, [&](World& world) {
    const std::unique_ptr<cuda::Context> gpu = cuda::open(world.rank());
    const auto expect_reason = [](const std::string& text) {
      EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
      EXPECT_NE(text.find("cudaDeviceGetPCIBusId"), std::string::npos) << text;
    };
    const int device = gpu->device;
    if (world.rank() == 1) gpu->device = 99;
    try {
      const DeviceAttachment attached = world.world().attach(*gpu, DeviceBackend::kNccl);
    } catch (const InputError& error) {
      expect_reason(error.what());
      ++refused;
    }
    const DeviceAttachment attached = world.world().attach(*gpu, DeviceBackend::kAuto);
    gpu->device = device;
    EXPECT_EQ(world.world().device_backend(), "staged");
    expect_reason(world.device_note());
  });
  EXPECT_EQ(refused, 2);
}

TEST(DeviceCommChoice, RanksThatShareAGpuAreNamed) {
  try {
    test::run_device_ranks(3, 2, DeviceBackend::kNccl, [](DeviceRank&) { FAIL(); });
    FAIL() << "two ranks on one GPU";
  } catch (const InputError& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find("rank 0"), std::string::npos) << what;
    EXPECT_NE(what.find("rank 2"), std::string::npos) << what;
    EXPECT_NE(what.find("staged"), std::string::npos) << what;
  }
}

TEST(DeviceCommChoice, NamesOfBackends) {
  EXPECT_EQ(parse_device_backend("staged"), DeviceBackend::kStaged);
  EXPECT_THROW(parse_device_backend("gloo"), InputError);
}

TEST(DeviceCommChoice, NoDeviceAttachedIsAFault) {
  emulator::set_devices(1);
  const std::unique_ptr<cuda::Context> gpu = cuda::open(0);
  const DeviceTensor data(*gpu, *TestTensor(DType::kF32, {4}));
  EXPECT_THROW(run_threads(1, [&](Communicator& world) { world.all_reduce(*data); }), Error);
}

}  // namespace
}  // namespace trireme
