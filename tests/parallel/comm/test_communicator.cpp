#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <mutex>

#include "engine/core/memory.h"
#include "engine/core/random.h"
#include "parallel/comm/collectives/collectives.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/world.h"
#include "tests/parallel/collective_checks.h"
#include "tests/support/compare.h"

namespace trireme::test_communicator {
namespace {

using test::TestTensor;

CommOptions options(CommAlgorithm algorithm, int ranks_per_node = 0, int64_t window = 1024) {
  CommOptions o;
  o.algorithm = algorithm;
  o.ranks_per_node = ranks_per_node;
  o.window_bytes = window;
  o.timeout_s = 120;
  return o;
}

void expect_collectives(int ranks, const CommOptions& o) {
  run_threads(
      ranks, [](Communicator& world) { EXPECT_EQ(test::check_collectives(world), ""); }, o);
}

TEST(Communicator, EveryCollectiveOverTheRing) {
  for (int ranks : {1, 2, 3, 4, 8}) expect_collectives(ranks, options(CommAlgorithm::kRing));
}

TEST(Communicator, EveryCollectiveThroughTheWindow) {
  for (int ranks : {1, 2, 3, 4, 8}) expect_collectives(ranks, options(CommAlgorithm::kShm));
}

TEST(Communicator, EveryCollectiveOnVirtualNodes) {
  expect_collectives(4, options(CommAlgorithm::kAuto, 2));
  expect_collectives(3, options(CommAlgorithm::kAuto, 2));  // nodes of 2 and 1
  expect_collectives(8, options(CommAlgorithm::kAuto, 3));  // nodes of 3, 3 and 2
  expect_collectives(3, options(CommAlgorithm::kAuto, 1));  // no windows at all
}

TEST(Communicator, EveryCollectiveWithChecks) {
  CommOptions o = options(CommAlgorithm::kAuto, 2);
  o.check_operations = true;
  expect_collectives(3, o);
}

// Results of one all-reduce of normal values, one string of bytes per rank.
std::vector<std::string> reduce_normals(int ranks, DType dtype, int64_t n, const CommOptions& o) {
  std::vector<std::string> results(static_cast<size_t>(ranks));
  run_threads(
      ranks,
      [&](Communicator& world) {
        const TestTensor data(dtype, {n});
        test::fill_normal(*data, concat("rank ", world.rank()));
        world.all_reduce(*data);
        results[static_cast<size_t>(world.rank())] = test::bytes_of(*data);
      },
      o);
  return results;
}

TEST(Communicator, AllRanksAndAllRunsGiveTheSameBits) {
  for (const CommOptions& o : {options(CommAlgorithm::kRing), options(CommAlgorithm::kShm),
                               options(CommAlgorithm::kAuto, 2), options(CommAlgorithm::kAuto, 3)})
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      const std::vector<std::string> first = reduce_normals(5, dtype, 1001, o);
      for (const std::string& bytes : first) EXPECT_TRUE(bytes == first[0]);
      EXPECT_TRUE(reduce_normals(5, dtype, 1001, o) == first);
    }
}

TEST(Communicator, WindowAddsInRankOrder) {
  constexpr int64_t kN = 777;
  std::vector<std::vector<double>> values;
  for (int r = 0; r < 3; ++r) values.push_back(test::normals(concat("rank ", r), kN));
  const std::string got = reduce_normals(3, DType::kF32, kN, options(CommAlgorithm::kShm))[0];
  for (size_t i = 0; i < kN; ++i) {
    float sum = static_cast<float>(values[0][i]);
    for (size_t r = 1; r < 3; ++r) sum += static_cast<float>(values[r][i]);
    float value = 0;
    std::memcpy(&value, got.data() + i * sizeof value, sizeof value);
    ASSERT_EQ(value, sum) << i;
  }
}

// Sums of 16-bit floats are kept in float32 and rounded once, in the ring and in the window.
TEST(Communicator, ShortFloatsAreRoundedOnce) {
  constexpr int64_t kN = 501;
  std::vector<double> want(kN, 0.0);
  for (int r = 0; r < 6; ++r) {
    const std::vector<double> values = test::normals(concat("rank ", r), kN);
    for (size_t i = 0; i < kN; ++i)
      want[i] += static_cast<double>(static_cast<float>(bf16(static_cast<float>(values[i]))));
  }
  for (CommAlgorithm algorithm : {CommAlgorithm::kRing, CommAlgorithm::kShm}) {
    const std::string got = reduce_normals(6, DType::kBF16, kN, options(algorithm))[0];
    for (size_t i = 0; i < kN; ++i) {
      bf16 value;
      std::memcpy(&value.bits, got.data() + 2 * i, 2);
      // Half a unit in the last place of the result, plus float32's rounding of the sum.
      const double allowed = std::abs(want[i]) * 0x1p-8 + 0x1p-20;
      ASSERT_NEAR(static_cast<double>(static_cast<float>(value)), want[i], allowed) << i;
    }
  }
}

// Bytes sent by all ranks in one ring all-reduce of n elements.
int64_t ring_bytes(int ranks, DType dtype, int64_t n, int per_node) {
  const int64_t bytes = n * dtype_size(dtype);
  const int64_t chunk = ceil_div(n, ranks) * dtype_size(dtype);
  std::atomic<int64_t> total{0};
  run_threads(
      ranks,
      [&](Communicator& world) {
        const TestTensor data(dtype, {n});
        world.all_reduce(*data);
        const Traffic traffic = world.traffic();
        const Traffic::Counter& counter = traffic[CommKind::kAllReduce];
        EXPECT_EQ(counter.calls, 1);
        EXPECT_EQ(counter.payload_bytes, bytes);
        EXPECT_EQ(counter.window_bytes, 0);
        EXPECT_EQ(traffic.total().sent_bytes, counter.sent_bytes);
        EXPECT_LE(std::abs(counter.sent_bytes * ranks - 2 * (ranks - 1) * bytes), chunk * ranks);
        total += counter.sent_bytes;
      },
      options(CommAlgorithm::kRing, per_node));
  return total;
}

TEST(Communicator, RingTrafficIsTheFormula) {
  for (int ranks : {2, 3, 4, 7})
    for (DType dtype : {DType::kF32, DType::kBF16})
      for (int per_node : {0, 2})
        for (int64_t n : {1, 5, 1003})
          EXPECT_EQ(ring_bytes(ranks, dtype, n, per_node), 2 * (ranks - 1) * n * dtype_size(dtype));
}

TEST(Communicator, WindowAndVirtualNodeTrafficIsTheFormula) {
  constexpr int64_t kN = 2003, kBytes = kN * 4;
  for (int per_node : {0, 2}) {
    std::atomic<int64_t> sent{0};
    run_threads(
        4,
        [&](Communicator& world) {
          const TestTensor data(DType::kF32, {kN});
          world.all_reduce(*data);
          const Traffic traffic = world.traffic();
          sent += traffic[CommKind::kAllReduce].sent_bytes;
          EXPECT_EQ(traffic[CommKind::kAllReduce].window_bytes, kBytes);
        },
        options(CommAlgorithm::kShm, per_node));
    const int nodes = per_node == 0 ? 1 : 2;
    EXPECT_EQ(sent, 2 * (nodes - 1) * kBytes);
  }
}

TEST(Communicator, OtherTrafficIsTheFormula) {
  constexpr int64_t kN = 100, kBytes = kN * 4;
  constexpr int kRanks = 5;
  std::mutex mutex;
  Traffic total;
  run_threads(
      kRanks,
      [&](Communicator& world) {
        const TestTensor part(DType::kF32, {kN}), all(DType::kF32, {kN * kRanks}),
            other(DType::kF32, {kN * kRanks});
        world.all_gather(*all, *part);
        world.reduce_scatter(*part, *all);
        world.broadcast(*part, 2);
        world.all_to_all(*other, *all);
        const Traffic mine = world.traffic();
        {
          const std::lock_guard lock(mutex);
          for (size_t k = 0; k < kCommKinds; ++k)
            total.counters[k].sent_bytes += mine.counters[k].sent_bytes;
        }
        world.reset_traffic();
        EXPECT_EQ(world.traffic().total().calls, 0);
      },
      options(CommAlgorithm::kRing));
  EXPECT_EQ(total[CommKind::kAllGather].sent_bytes, kRanks * (kRanks - 1) * kBytes);
  EXPECT_EQ(total[CommKind::kReduceScatter].sent_bytes, kRanks * (kRanks - 1) * kBytes);
  EXPECT_EQ(total[CommKind::kBroadcast].sent_bytes, (kRanks - 1) * kBytes);
  EXPECT_EQ(total[CommKind::kAllToAll].sent_bytes, kRanks * (kRanks - 1) * kBytes);
}

// (N - 1) n, whether or not N divides n.
TEST(Communicator, UnevenPiecesSendExactlyTheFormula) {
  for (const int64_t n : {int64_t{3}, int64_t{100}, int64_t{102}})
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      std::atomic<int64_t> scattered{0}, gathered{0};
      run_threads(
          5,
          [&](Communicator& world) {
            const TestTensor data(dtype, {n});
            world.reduce_scatter_v(*data);
            world.all_gather_v(*data);
            scattered += world.traffic()[CommKind::kReduceScatter].sent_bytes;
            gathered += world.traffic()[CommKind::kAllGather].sent_bytes;
          },
          options(CommAlgorithm::kRing));
      EXPECT_EQ(scattered, 4 * n * dtype_size(dtype));
      EXPECT_EQ(gathered, 4 * n * dtype_size(dtype));
    }
}

// On one node the pieces pass through the window instead: the other ranks' parts, and the own
// piece.
TEST(Communicator, UnevenPiecesPassThroughTheWindowOfANode) {
  for (const int64_t n : {int64_t{3}, int64_t{102}, int64_t{5003}}) {
    std::atomic<int64_t> scattered{0}, gathered{0}, sent{0};
    run_threads(
        5,
        [&](Communicator& world) {
          const TestTensor data(DType::kF32, {n});
          world.reduce_scatter_v(*data);
          world.all_gather_v(*data);
          const Traffic traffic = world.traffic();
          scattered += traffic[CommKind::kReduceScatter].window_bytes;
          gathered += traffic[CommKind::kAllGather].window_bytes;
          sent += traffic[CommKind::kReduceScatter].sent_bytes;
          sent += traffic[CommKind::kAllGather].sent_bytes;
        },
        options(CommAlgorithm::kShm));
    EXPECT_EQ(scattered, 4 * n * 4);
    EXPECT_EQ(gathered, n * 4);
    EXPECT_EQ(sent, 0);
  }
}

// The operations share two buffers: none may write to one that a slower rank still reads, whatever
// their order and number of parts.
TEST(Communicator, OperationsThroughOneWindowDoNotOverwriteEachOther) {
  constexpr int kRanks = 3;
  run_threads(
      kRanks,
      [](Communicator& world) {
        const RandomKey key{7, 0};  // the same order on all ranks
        for (uint64_t k = 0; k < 400; ++k) {
          const int64_t n =
              philox_word(key, 2 * k) % 3 == 0 ? 20 : 700 + 10 * static_cast<int64_t>(k);
          const auto count = static_cast<size_t>(n);
          const double base = static_cast<double>(k % 17 + 1);
          const TestTensor data(DType::kF64, {n},
                                std::vector<double>(count, base * (world.rank() + 1)));
          const uint64_t kind = philox_word(key, 2 * k + 1) % 3;
          double want = base * 6;  // 1 + 2 + 3
          if (kind == 0) world.all_reduce(*data);
          if (kind > 0) world.reduce_scatter_v(*data);
          if (kind == 2) world.all_gather_v(*data);
          const Piece own = kind == 1 ? piece_of(n, kRanks, world.rank()) : Piece{0, n};
          int64_t wrong = 0;
          for (int64_t i = own.begin; i < own.end; ++i) wrong += data->as<double>()[i] != want;
          ASSERT_EQ(wrong, 0) << "operation " << k << " of kind " << kind << ", " << n
                              << " elements";
        }
      },
      options(CommAlgorithm::kShm));
}

TEST(Communicator, StartedOperationsRunInOrderAndBeforeLaterBlockingOnes) {
  for (CommAlgorithm algorithm : {CommAlgorithm::kRing, CommAlgorithm::kShm})
    run_threads(
        3,
        [](Communicator& world) {
          // x -> 3 x each time: the result shows how many ran before.
          const TestTensor data(DType::kF64, {501}, std::vector<double>(501, 1.0));
          const TestTensor copy(DType::kF64, {1503});
          std::vector<Work> work;
          for (int k = 0; k < 6; ++k) work.push_back(world.all_reduce_async(*data));
          work.push_back(world.all_gather_async(*copy, *data));
          world.all_reduce(*data);
          for (const Work& w : work) {
            EXPECT_TRUE(w.done());
            w.wait();
            EXPECT_GT(w.seconds(), 0.0);
          }
          EXPECT_EQ(data->as<double>()[500], 2187.0);
          EXPECT_EQ(copy->as<double>()[1502], 729.0);
        },
        options(algorithm));
}

TEST(Communicator, SubgroupsOfOneRankInterleave) {
  run_threads(
      4,
      [](Communicator& world) {
        const auto row = world.split(world.rank() / 2, world.rank(), "row");
        const auto column = world.split(world.rank() % 2, world.rank(), "column");
        const TestTensor data(DType::kF32, {100}, std::vector<double>(100, 1.0));
        for (int k = 0; k < 5; ++k) {
          const Work a = row->all_reduce_async(*data);
          const Work b = column->all_reduce_async(*data);
          b.wait();
        }
        EXPECT_EQ(data->as<float>()[99], 1024.0f);
        EXPECT_EQ(row->world_rank(1), world.rank() / 2 * 2 + 1);
      },
      options(CommAlgorithm::kAuto, 2));
}

TEST(Communicator, WorldKnowsItsPlaces) {
  run_thread_worlds(
      4,
      [](World& world) {
        EXPECT_EQ(world.size(), 4);
        EXPECT_EQ(world.local_size(), 4);
        EXPECT_EQ(world.local_rank(), world.rank());
        EXPECT_EQ(world.nodes(), 2);
        EXPECT_EQ(world.host(), 0);
        EXPECT_EQ(world.node(), world.rank() / 2);
        EXPECT_EQ(world.backend(), "threads");
        EXPECT_EQ(world.describe(), "4 ranks over threads on 1 host, 2 nodes");
      },
      options(CommAlgorithm::kAuto, 2));
}

TEST(Communicator, NoMemoryIsTakenAfterTheFirstRound) {
  for (CommAlgorithm algorithm : {CommAlgorithm::kRing, CommAlgorithm::kShm})
    run_threads(
        3,
        [](Communicator& world) {
          const TestTensor data(DType::kBF16, {100'000});
          world.all_reduce(*data);
          world.barrier();
          const int64_t before = allocation_count();
          for (int k = 0; k < 3; ++k) world.all_reduce(*data);
          EXPECT_EQ(allocation_count(), before);
          world.barrier();
        },
        options(algorithm));
}

TEST(Communicator, RefusesWrongOperands) {
  run_threads(2, [](Communicator& world) {
    const TestTensor four(DType::kF32, {4}), three(DType::kF32, {3});
    EXPECT_THROW(world.all_gather(*four, *three), Error);
    EXPECT_THROW(world.reduce_scatter(*three, *four), Error);
    EXPECT_THROW(world.broadcast(*four, 2), Error);
    EXPECT_THROW(world.send(*four, 0, -1), Error);
    uint8_t byte = 0;
    EXPECT_THROW(world.all_reduce(Tensor(&byte, DType::kU8, {1})), Error);
    world.barrier();
  });
  EXPECT_THROW(parse_comm_algorithm("tree"), InputError);
  EXPECT_EQ(parse_comm_algorithm("shm"), CommAlgorithm::kShm);
}

}  // namespace
}  // namespace trireme::test_communicator
