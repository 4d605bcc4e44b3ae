// A rank that throws, dies or calls another operation: the others end soon, with a clear error.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "parallel/comm/rank_state.h"
#include "parallel/comm/world.h"
#include "tests/support/compare.h"

namespace trireme::test_world {
namespace {

using test::TestTensor;
using Clock = std::chrono::steady_clock;

CommOptions options(CommAlgorithm algorithm, bool check = false) {
  CommOptions o;
  o.algorithm = algorithm;
  o.check_operations = check;
  o.timeout_s = 120;
  return o;
}

// Results of ranks of which at least one fails: each rank's message ("": none).
struct Result {
  std::vector<std::string> errors;
  std::vector<ExitCode> codes;
  double seconds = 0;
};

Result run_failing(int ranks, const std::function<void(Communicator&)>& fn, const CommOptions& o) {
  Result result;
  result.errors.resize(static_cast<size_t>(ranks));
  result.codes.resize(static_cast<size_t>(ranks));
  const auto start = Clock::now();
  const auto rank = [&](Communicator& world) {
    const auto r = static_cast<size_t>(world.rank());
    try {
      fn(world);
    } catch (const Error& e) {
      result.errors[r] = e.what();
      result.codes[r] = e.code();
      throw;
    }
  };
  EXPECT_THROW(run_threads(ranks, rank, o), Error);
  result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return result;
}

TEST(Failure, ARankThatThrowsWakesTheOthers) {
  for (CommAlgorithm algorithm : {CommAlgorithm::kRing, CommAlgorithm::kShm}) {
    const Result result = run_failing(
        4,
        [](Communicator& world) {
          const TestTensor data(DType::kF32, {1000});
          world.all_reduce(*data);
          if (world.rank() == 2) throw Error("the batch is on fire");
          world.all_reduce(*data);
        },
        options(algorithm));
    EXPECT_LT(result.seconds, 60);
    EXPECT_EQ(result.errors[2], "the batch is on fire");
    for (size_t r : {0u, 1u, 3u}) {
      EXPECT_EQ(result.codes[r], ExitCode::kLostRank);
      EXPECT_EQ(result.errors[r],
                concat("rank ", r, " of group \"world\" (4 ranks): all_reduce of 4000 bytes ",
                       "stopped: rank 2 failed: the batch is on fire"));
    }
  }
}

TEST(Failure, TheFirstCauseIsRethrown) {
  try {
    run_threads(3, [](Communicator& world) {
      if (world.rank() == 1) throw InputError("the real cause");
      world.barrier();
    });
    FAIL() << "no exception";
  } catch (const InputError& e) {
    EXPECT_STREQ(e.what(), "the real cause");
  }
}

TEST(Failure, StartedOperationsFailToo) {
  const Result result = run_failing(
      2,
      [](Communicator& world) {
        const TestTensor data(DType::kF32, {1000});
        if (world.rank() == 1) throw Error("gone");
        const Work first = world.all_reduce_async(*data);
        const Work second = world.all_reduce_async(*data);
        EXPECT_THROW(first.wait(), Error);
        second.wait();
      },
      options(CommAlgorithm::kAuto));
  EXPECT_LT(result.seconds, 60);
  EXPECT_EQ(result.codes[0], ExitCode::kLostRank);
}

TEST(Failure, NobodyEntersACollectiveAfterALoss) {
  const auto rank = [](Communicator& world) {
    const TestTensor data(DType::kF32, {8});
    if (world.rank() == 1) {
      world.abort("rank 1 gives up");
      EXPECT_THROW(world.barrier(), Error);
      throw Error("done");
    }
    EXPECT_THROW(world.recv(*data, 1), Error);
    EXPECT_THROW(world.check_alive(), Error);
    const int64_t calls = world.traffic().total().calls;
    EXPECT_THROW(world.all_reduce(*data), Error);
    EXPECT_EQ(world.traffic().total().calls, calls);
    world.barrier();
  };
  const Result result = run_failing(2, rank, options(CommAlgorithm::kAuto));
  EXPECT_NE(result.errors[0].find("rank 1 gives up"), std::string::npos) << result.errors[0];
}

TEST(Failure, ASilentPeerRunsIntoTheTimeout) {
  CommOptions o = options(CommAlgorithm::kAuto);
  o.timeout_s = 0.2;
  std::atomic<bool> over = false;
  const auto rank = [&](Communicator& world) {
    while (world.rank() == 1 && !over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (world.rank() == 1) return;
    try {
      world.barrier();
    } catch (...) {
      over = true;
      throw;
    }
    over = true;
  };
  const Result result = run_failing(2, rank, o);
  EXPECT_NE(result.errors[0].find("barrier of 0 bytes stopped: waited"), std::string::npos)
      << result.errors[0];
  EXPECT_LT(result.seconds, 60);
}

TEST(Failure, ARankThatEndsEarlyIsNamed) {
  const auto rank = [](Communicator& world) {
    if (world.rank() == 1) return;
    world.all_reduce(*TestTensor(DType::kF32, {100}));
  };
  const Result result = run_failing(3, rank, options(CommAlgorithm::kShm));
  EXPECT_LT(result.seconds, 60);
  const std::string both = result.errors[0] + result.errors[2];
  EXPECT_NE(both.find("rank 1 has ended its run"), std::string::npos) << both;
}

// Each of three ranks names rank 2, which calls `odd` where rank 0 calls `other`.
void expect_named(const std::function<void(Communicator&)>& fn, const std::string& odd,
                  const std::string& other) {
  for (CommAlgorithm algorithm : {CommAlgorithm::kRing, CommAlgorithm::kShm}) {
    const Result result = run_failing(3, fn, options(algorithm, true));
    for (const std::string& e : result.errors) {
      EXPECT_NE(e.find(concat("rank 2 calls ", odd)), std::string::npos) << e;
      EXPECT_NE(e.find(concat("while rank 0 calls ", other)), std::string::npos) << e;
    }
  }
}

TEST(Failure, ChecksNameTheRankThatCallsSomethingElse) {
  const TestTensor a(DType::kF32, {8}), b(DType::kF32, {9});
  const auto odd = [](Communicator& w) { return w.rank() == 2; };
  expect_named([&](Communicator& w) { w.all_reduce(odd(w) ? *b : *a); },
               "all_reduce number 257 of 36 bytes of float32",
               "all_reduce number 257 of 32 bytes of float32");
  expect_named(
      [&](Communicator& w) { w.all_reduce(odd(w) ? Tensor(a->raw(), DType::kI32, {8}) : *a); },
      "all_reduce number 257 of 32 bytes of int32", "all_reduce number 257");
  expect_named([&](Communicator& w) { w.all_reduce(*a, odd(w) ? ReduceOp::kMax : ReduceOp::kSum); },
               "all_reduce number 257 of 32 bytes of float32, max", "all_reduce number 257");
  expect_named(
      [&](Communicator& w) {
        w.barrier();
        odd(w) ? w.barrier() : w.broadcast(*a, 0);
      },
      "barrier number 258", "broadcast number 258 of 32 bytes");
  expect_named([&](Communicator& w) { w.broadcast(*a, odd(w) ? 1 : 0); },
               "broadcast number 257 of 32 bytes of float32, sum, root 1", "broadcast number 257");
}

TEST(Failure, ChecksAreCountedApart) {
  run_threads(
      3,
      [](Communicator& world) {
        const TestTensor data(DType::kF32, {300});
        for (int k = 0; k < 3; ++k) world.all_reduce(*data);
        EXPECT_EQ(world.traffic()[CommKind::kAllReduce].calls, 3);
        EXPECT_EQ(world.traffic()[CommKind::kAllReduce].sent_bytes, 3 * 4 * 400);
        EXPECT_GT(world.traffic()[CommKind::kControl].sent_bytes, 0);
      },
      options(CommAlgorithm::kRing, true));
}

TEST(Failure, AMessageOfTheWrongSizeIsNamed) {
  const auto rank = [](Communicator& world) {
    const TestTensor four(DType::kF32, {4}), five(DType::kF32, {5});
    world.rank() == 0 ? world.send(*four, 1) : world.recv(*five, 0);
  };
  const Result result = run_failing(2, rank, options(CommAlgorithm::kAuto));
  EXPECT_NE(result.errors[1].find("message of 16 bytes from world rank 0, expected 20 bytes"),
            std::string::npos)
      << result.errors[1];
}

// A message that is still in progress does not own the state of its rank: the thread that moves it
// would be the last one to release it, and would wait for its own end.
TEST(Failure, AMessageInProgressDoesNotKeepItsRank) {
  constexpr int kRanks = 2;
  const auto hub = make_thread_hub(kRanks);
  const TestTensor data(DType::kF32, {100});
  std::array<std::weak_ptr<RankState>, kRanks> left;
  std::vector<std::thread> threads;
  for (int r = 0; r < kRanks; ++r)
    threads.emplace_back([&, r] {
      auto state = connect_rank(make_thread_transport(hub, r), options(CommAlgorithm::kAuto), "a1");
      left[static_cast<size_t>(r)] = state;
      World world(std::move(state));
      const auto pair = world.world().split(0, r, "pair");
      if (r == 0) pair->post_recv(*data, 1);
    });
  for (std::thread& t : threads) t.join();
  EXPECT_TRUE(left[0].expired());
  EXPECT_TRUE(left[1].expired());
}

// Errors of three ranks whose options or builds `vary` by rank.
std::vector<std::string> connect_errors(
    const std::function<void(int, CommOptions&, std::string&)>& vary) {
  constexpr int kRanks = 3;
  const auto hub = make_thread_hub(kRanks);
  std::vector<std::string> errors(kRanks);
  std::vector<std::thread> threads;
  for (int r = 0; r < kRanks; ++r)
    threads.emplace_back([&, r] {
      CommOptions o = options(CommAlgorithm::kAuto);
      std::string build = "a1";
      vary(r, o, build);
      try {
        connect_rank(make_thread_transport(hub, r), o, build);
      } catch (const InputError& e) {
        errors[static_cast<size_t>(r)] = e.what();
      }
    });
  for (std::thread& t : threads) t.join();
  return errors;
}

TEST(Failure, OtherBuildsAndOptionsAreNamed) {
  const auto other_build = [](int r, CommOptions&, std::string& build) {
    if (r == 1) build = "b2";
  };
  for (const std::string& e : connect_errors(other_build)) {
    EXPECT_NE(e.find("rank 1 on "), std::string::npos) << e;
    EXPECT_NE(e.find("build b2, wire format"), std::string::npos) << e;
  }
  const auto other_window = [](int r, CommOptions& o, std::string&) {
    if (r == 2) o.window_bytes = 4096;
  };
  for (const std::string& e : connect_errors(other_window))
    EXPECT_NE(e.find("rank 2 has different communication options"), std::string::npos) << e;
  EXPECT_FALSE(executable_build_id().empty());
}

}  // namespace
}  // namespace trireme::test_world
