// Rank supervisor with ranks without a model: this executable, started again as FakeRank.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <csignal>
#include <mutex>

#include "parallel/comm/launcher_environment.h"
#include "serving/distributed/rank_supervisor.h"
#include "tests/serving/distributed/word_weights.h"

namespace trireme::test_rank_supervisor {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLong{120'000};

// Faults of a fake rank by prompt length; for_each_plan() has no prompts of these lengths.
constexpr int64_t kHang = 37, kDie = 38, kThrow = 39;
// Suffix of weights that take a second to load.
constexpr char kSlow = '~';

class Moody final : public StepExecutor {
 public:
  Moody(const test::WordWeights& weights, int64_t blocks) : texts_(weights), blocks_(blocks) {}
  StepOutput execute(const SchedulerOutput& plan) override {
    const int64_t prompt = plan.starts.empty() ? 0 : plan.starts.front().prompt_tokens;
    if (prompt == kHang) std::this_thread::sleep_for(std::chrono::hours(1));
    if (prompt == kDie) raise(SIGKILL);
    if (prompt == kThrow) throw Error(concat("a fault of its own, told of ", blocks_, " blocks"));
    return texts_.execute(plan);
  }

 private:
  test::WordTexts texts_;
  int64_t blocks_;
};

// Not a test: code of the processes that a supervisor starts.
TEST(FakeRank, DISABLED_Follows) {
  const int rank = detect_launcher().rank;
  const auto channel =
      connect_control_channel(ControlAddress::parse(leader_from_environment()), rank, kLong);
  Heartbeat heartbeat(*channel);
  const RankTask task = receive_task(*channel, kLong);
  std::string word = task.model;
  for (const std::string& adapter : task.adapters) word += adapter;
  if (word.ends_with(kSlow)) std::this_thread::sleep_for(milliseconds(1000));
  test::WordWeights weights(word);
  weights.refuses = "others";
  Moody texts(weights, task.blocks);
  channel->send(MessageKind::kReady, 0,
                encode_ready({.bounds = test::kPlanBounds, .dtype = "fp32", .device = "nothing"}));
  try {
    follow_plans(*channel, texts,
                 {.bounds = test::kPlanBounds,
                  .reports_outputs = rank == 1,
                  .heartbeat = &heartbeat,
                  .weights = &weights});
  } catch (const Error& error) {
    const std::string why = error.what();
    channel->send(MessageKind::kFailed, 0, std::as_bytes(std::span(why)));
  }
}

RankGroupConfig fake_ranks() {
  return {.ranks = 2,
          .command = {"/proc/self/exe", "--gtest_also_run_disabled_tests", "--gtest_brief=1",
                      "--gtest_filter=FakeRank.DISABLED_Follows"},
          .task = {"", "", {"", ""}},
          .min_step = StepDeadline::Seconds(2)};
}

// Reports of the supervisor.
struct Said {
  explicit Said(RankSupervisor& supervisor) : ranks(supervisor) {
    ranks.listen([this](const std::string& why) {
      const std::lock_guard lock(mutex);
      // The first report of readiness may come after another thread has waited for it.
      if (!why.empty() || !all.empty()) all.push_back(why);
    });
  }
  ~Said() { ranks.listen({}); }
  bool comes(size_t count, milliseconds within) {
    const auto end = std::chrono::steady_clock::now() + within;
    for (;;) {
      {
        const std::lock_guard lock(mutex);
        if (all.size() >= count) return true;
      }
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(milliseconds(5));
    }
  }
  RankSupervisor& ranks;
  std::mutex mutex;
  std::vector<std::string> all;
};

// The first token of a prompt.
SchedulerOutput plan_of(uint64_t number, int64_t prompt_tokens) {
  SchedulerOutput plan;
  plan.number = number;
  plan.starts.push_back({.slot = 0,
                         .prompt_tokens = prompt_tokens,
                         .history = {},
                         .generated = 0,
                         .sampling_params = std::make_shared<SamplingParams>()});
  plan.sequences.push_back({.slot = 0, .tokens = 1, .samples = true});
  plan.tables.push_back({.blocks = 1});
  plan.tokens = {3};
  plan.blocks = {0};
  return plan;
}

TEST(RankSupervisor, BringsBackWhatItsRanksCompute) {
  RankSupervisor ranks(fake_ranks());
  EXPECT_EQ(ranks.wait_until_ready().device, "nothing");
  RemoteExecutor executor(ranks);
  test::for_each_plan(20, [&](const SchedulerOutput& plan, const StepOutput& outcome) {
    EXPECT_EQ(encode_output(executor.execute(plan)), encode_output(outcome));
    EXPECT_GT(executor.plan_send_seconds(), 0);
  });
  EXPECT_EQ(ranks.counts().starts, 1);
}

// Each kind of loss ends the running step, and only that.
TEST(RankSupervisor, StartsLostRanksAgain) {
  RankSupervisor ranks(fake_ranks());
  ranks.wait_until_ready();
  Said said(ranks);
  uint64_t number = 0;
  size_t reports = 0;
  for (const auto& [prompt, why] :
       {std::pair(kDie, std::string("rank")),
        std::pair(kThrow, concat("told of ", test::kPlanBounds.blocks, " blocks")),
        std::pair(kHang, std::string("no result from rank 0, 1"))}) {
    SCOPED_TRACE(why);
    // Steps of its size are known to be short.
    const StepOutput before = ranks.execute(plan_of(++number, 3));
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_THROW(ranks.execute(plan_of(++number, prompt)), Error);
    // The first step of its size would have a minute.
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(40));
    ASSERT_TRUE(said.comes(reports += 2, kLong));
    EXPECT_NE(said.all[reports - 2].find(why), std::string::npos) << said.all[reports - 2];
    EXPECT_EQ(said.all[reports - 1], "");
    EXPECT_TRUE(ranks.counts().ready);
    const StepOutput after = ranks.execute(plan_of(++number, 3));
    EXPECT_EQ(after.sampled.at(0).id, before.sampled.at(0).id);
  }
  EXPECT_EQ(ranks.counts().starts, 4);
}

// The step that took too long does not count against the ranks that replace them.
TEST(RankSupervisor, StartsSlowRanksAgainAfterAStepThatHangs) {
  RankGroupConfig slow = fake_ranks();
  slow.task.model = kSlow;
  RankSupervisor ranks(std::move(slow));
  ranks.wait_until_ready();
  Said said(ranks);
  ranks.execute(plan_of(1, 3));
  EXPECT_THROW(ranks.execute(plan_of(2, kHang)), Error);
  ASSERT_TRUE(said.comes(2, kLong));
  EXPECT_EQ(said.all[1], "");
  ranks.execute(plan_of(3, 3));
  EXPECT_EQ(ranks.counts().starts, 2);
}

int32_t token_of(RankSupervisor& ranks, uint64_t number, int64_t prompt) {
  return ranks.execute(plan_of(number, prompt)).sampled.at(0).id;
}

// Also for ranks that start later.
TEST(RankSupervisor, ChangesTheWeightsOfAll) {
  RankSupervisor ranks(fake_ranks());
  ranks.wait_until_ready();
  Said said(ranks);
  const int32_t before = token_of(ranks, 1, 3);
  EXPECT_THROW(ranks.stage({.path = "others"}), InputError);
  ranks.drop();
  EXPECT_EQ(token_of(ranks, 2, 3), before);
  ranks.stage({.path = "two words"});
  EXPECT_EQ(token_of(ranks, 3, 3), before);
  ranks.commit({.path = "two words"});
  EXPECT_EQ(token_of(ranks, 4, 3), before);
  ranks.use();
  ranks.drop();
  const int32_t shifted = (before + 9) % static_cast<int32_t>(test::kPlanBounds.ids);
  EXPECT_EQ(token_of(ranks, 5, 3), shifted);
  EXPECT_THROW(ranks.execute(plan_of(6, kDie)), Error);
  ASSERT_TRUE(said.comes(2, kLong));
  EXPECT_EQ(token_of(ranks, 7, 3), shifted);
  // Weights that are only staged are not loaded by ranks that start.
  ranks.stage({.path = "x"});
  EXPECT_THROW(ranks.execute(plan_of(8, kDie)), Error);
  ASSERT_TRUE(said.comes(4, kLong));
  ranks.drop();
  EXPECT_EQ(token_of(ranks, 9, 3), shifted);
}

// Ranks of replicas may be lost at any time; the committed weights are finally loaded by all.
TEST(RankSupervisor, ComesBackWithWhatIsDecidedOn) {
  RankSupervisor ranks(fake_ranks());
  ranks.wait_until_ready();
  Said said(ranks);
  const int32_t before = token_of(ranks, 1, 3);
  size_t reports = 0;
  uint64_t number = 1;
  std::string word;
  // As soon as there are ranks that can run it.
  const auto expect = [&](char more) {
    word += more;
    const auto end = std::chrono::steady_clock::now() + kLong;
    const auto token = [&] {
      for (;;) {
        try {
          ranks.use();
          ranks.drop();
          return token_of(ranks, ++number, 3);
        } catch (const Error&) {
          if (std::chrono::steady_clock::now() > end) throw;
          std::this_thread::sleep_for(milliseconds(5));
        }
      }
    };
    EXPECT_EQ(token(), (before + static_cast<int32_t>(word.size())) %
                           static_cast<int32_t>(test::kPlanBounds.ids));
  };
  const auto lose = [&] { EXPECT_THROW(ranks.execute(plan_of(++number, kDie)), Error); };
  {
    SCOPED_TRACE("lost before they use what they have staged");
    ranks.stage({.path = word + 'x'});
    ranks.commit({.path = word + 'x'});
    lose();
    EXPECT_THROW(ranks.use(), Error);
    ASSERT_TRUE(said.comes(reports += 2, kLong));
    expect('x');  // they already have it
  }
  {
    SCOPED_TRACE("lost, and back with those of before, when it is decided");
    ranks.stage({.path = word + kSlow});
    lose();
    ASSERT_TRUE(said.comes(reports += 2, kLong));
    ranks.commit({.path = word + kSlow});
    ASSERT_TRUE(said.comes(reports += 2, kLong));  // they start once more
    expect(kSlow);
  }
  {
    SCOPED_TRACE("starting with those of before when it is decided");
    // This thread may be suspended during the second of loading: then the ranks are all back, and
    // lost again.
    bool starting = false;
    for (int tries = 0; tries < 20 && !starting; ++tries) {
      lose();
      ASSERT_TRUE(said.comes(reports + 1, kLong));
      try {
        ranks.stage({.path = word + 'x'});
        ASSERT_TRUE(said.comes(reports += 2, kLong));
      } catch (const Error&) {
        starting = true;
      }
      ranks.drop();
    }
    EXPECT_TRUE(starting);
    std::this_thread::sleep_for(milliseconds(600));
    ranks.commit({.path = word + 'x'});
    expect('x');
  }
}

// Also adapters; a removed one is not loaded again.
TEST(RankSupervisor, StartsRanksWithTheAdaptersOfAll) {
  RankSupervisor ranks(fake_ranks());
  ranks.wait_until_ready();
  Said said(ranks);
  const int32_t before = token_of(ranks, 1, 3);
  const auto shifted = [&](int32_t by) {
    return (before + by) % static_cast<int32_t>(test::kPlanBounds.ids);
  };
  for (const int32_t slot : {0, 1}) {
    const StageRequest request{.slot = slot, .path = slot == 0 ? "of five" : "12345"};
    ranks.stage(request);
    ranks.commit(request);
    ranks.use();
    ranks.drop();
  }
  ranks.forget_adapter(0);
  EXPECT_THROW(ranks.execute(plan_of(2, kDie)), Error);
  ASSERT_TRUE(said.comes(2, kLong));
  EXPECT_EQ(token_of(ranks, 3, 3), shifted(5));
}

TEST(RankSupervisor, SaysHowTheFirstStartFailed) {
  RankSupervisor ranks({.ranks = 2, .command = {"/bin/sh", "-c", "exit 2"}});
  try {
    ranks.wait_until_ready();
    FAIL() << "they are ready";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kBadInput);
    EXPECT_NE(std::string(error.what()).find("exit code 2"), std::string::npos) << error.what();
  }
  EXPECT_EQ(ranks.counts().starts, 1);
  EXPECT_FALSE(ranks.counts().ready);
  EXPECT_THROW(ranks.execute(plan_of(1, 3)), Error);
}

// One of several replicas reports its number, also while another one is not ready yet.
TEST(RankSupervisor, SaysWhichReplicaFailedBeforeTheOthersAreReady) {
  RankSupervisor slow({.command = {"/bin/sleep", "60"}, .position = {.number = 0, .groups = 2}});
  RankSupervisor failed(
      {.command = {"/bin/sh", "-c", "exit 1"}, .position = {.number = 1, .groups = 2}});
  std::string why;
  for (int looks = 0; why.empty() && looks < 400; ++looks) {
    EXPECT_FALSE(slow.wait_until_ready(milliseconds(25)));
    try {
      EXPECT_FALSE(failed.wait_until_ready(milliseconds(25)));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kFailure);
      why = error.what();
    }
  }
  EXPECT_TRUE(why.starts_with("replica 1: ")) << why;
  EXPECT_NE(why.find("exit code 1"), std::string::npos) << why;
}

// Not a test: connects repeatedly without introducing itself.
TEST(FakeRank, DISABLED_Stranger) {
  const ControlAddress address = ControlAddress::parse(leader_from_environment());
  sockaddr_un where{};
  where.sun_family = AF_UNIX;
  const std::string name = address.where.substr(5);
  name.copy(where.sun_path + 1, sizeof where.sun_path - 1);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  for (;;) {
    const Socket stranger(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    (void)connect(stranger.fd(), reinterpret_cast<const sockaddr*>(&where), length);
    std::this_thread::sleep_for(milliseconds(20));
  }
}

// Foreign connections do not extend the deadline of ranks that never join.
TEST(RankSupervisor, GivesUpRanksThatNeverComeAmongStrangers) {
  const auto begin = std::chrono::steady_clock::now();
  RankSupervisor ranks({.ranks = 2,
                        .command = {"/proc/self/exe", "--gtest_also_run_disabled_tests",
                                    "--gtest_brief=1", "--gtest_filter=FakeRank.DISABLED_Stranger"},
                        .rendezvous = milliseconds(1000)});
  try {
    ranks.wait_until_ready();
    FAIL() << "they are ready";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kLostRank);
    EXPECT_NE(std::string(error.what()).find("2 of 2 ranks have not connected"), std::string::npos)
        << error.what();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

// A shutdown does not wait for ranks that never join.
TEST(RankSupervisor, EndsWhileItsRanksStart) {
  const auto begin = std::chrono::steady_clock::now();
  { const RankSupervisor ranks({.ranks = 2, .command = {"/bin/sleep", "600"}}); }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

}  // namespace
}  // namespace trireme::test_rank_supervisor
