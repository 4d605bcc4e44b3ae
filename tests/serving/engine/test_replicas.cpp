// Several engines as one: placement of sequences, and handling of those of a failed engine.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <deque>
#include <future>
#include <numeric>
#include <set>
#include <thread>

#include "engine/core/error.h"
#include "serving/engine/replicas.h"
#include "tests/serving/scheduler/gated_texts.h"

namespace trireme::test_replicas {
namespace {

constexpr int64_t kBlocks = 200, kBlockTokens = 4;
const BatchingConfig kConfig{.max_sequences = 8, .max_step_tokens = 64, .max_model_len = 200};

struct Completion {
  std::vector<int32_t> tokens;
  int64_t cached = 0;
  size_t replica = 0;
  FinishReason reason = FinishReason::kStop;
  std::string error;
  bool may_retry = false;
};

SequenceRequest request_of(std::vector<int32_t> prompt, std::string salt = "") {
  return {.prompt = std::move(prompt),
          .sampling_params = std::make_shared<SamplingParams>(),
          .max_tokens = 5,
          .salt = std::move(salt)};
}

std::vector<int32_t> text_of(std::vector<int32_t> prompt) {
  const auto length = std::ssize(prompt);
  for (int i = 0; i < 5; ++i) prompt.push_back(test::next_of(prompt, 256));
  return {prompt.begin() + length, prompt.end()};
}

// A prefix of two blocks of the placement's block size, and one token.
std::vector<int32_t> long_prompt(int32_t last, int32_t first = 1) {
  std::vector<int32_t> prompt(65);
  std::iota(prompt.begin(), prompt.end(), first);
  prompt.back() = last;
  return prompt;
}

class ReplicasTest : public testing::Test {
 protected:
  static constexpr size_t kReplicas = 3;
  ~ReplicasTest() override { release(); }

  static SequenceListener listener(std::future<Completion>& end) {
    auto completion = std::make_shared<Completion>();
    auto done = std::make_shared<std::promise<Completion>>();
    end = done->get_future();
    return [completion, done](SequenceEvent&& event) {
      for (const OutputToken& token : event.tokens) completion->tokens.push_back(token.id);
      completion->cached = event.cached_prompt;
      completion->replica = event.replica;
      completion->error = event.error.why;
      completion->may_retry = event.may_retry;
      if (!event.finish) return;
      completion->reason = *event.finish;
      done->set_value(*completion);
    };
  }
  SequenceId add(const SequenceRequest& request, const std::shared_ptr<WeightsHold>& hold = nullptr,
                 SequenceId beside = 0) {
    return engines.add(request, listener(ends.emplace_back()), hold, beside);
  }
  size_t placed(const SequenceRequest& request) { return engines.replica_of(add(request)); }
  Completion write(const SequenceRequest& request) {
    add(request);
    return ends.back().get();
  }
  void hold() {
    for (test::Gate& gate : gates) gate.hold();
  }
  void release() {
    for (test::Gate& gate : gates) gate.release();
  }
  void settle() {
    for (size_t i = 0; i < kReplicas; ++i) engines[i].between_steps([] {});
  }
  std::vector<std::unique_ptr<Engine>> make() {
    std::vector<std::unique_ptr<Engine>> all;
    for (test::Gate& gate : gates)
      all.push_back(
          std::make_unique<Engine>(std::make_unique<test::GatedTexts>(gate, kBlocks, kBlockTokens),
                                   kConfig, kBlocks, kBlockTokens));
    return all;
  }

  std::deque<test::Gate> gates{kReplicas};
  std::deque<std::future<Completion>> ends;
  Replicas engines{make(), {.absolute = 4}};
};

TEST_F(ReplicasTest, ShareOutSequences) {
  hold();
  std::vector<size_t> where(kReplicas);
  for (int32_t i = 0; i < 9; ++i) ++where[placed(request_of({i}))];
  EXPECT_EQ(where, (std::vector<size_t>{3, 3, 3}));
  release();
  for (int32_t i = 0; i < 9; ++i) {
    const Completion completion = ends[static_cast<size_t>(i)].get();
    EXPECT_EQ(completion.tokens, text_of({i}));
    EXPECT_EQ(completion.replica, static_cast<size_t>(i) % kReplicas);
  }
}

TEST_F(ReplicasTest, ComputeAPromptWhereItsBeginningIs) {
  const Completion first = write(request_of(long_prompt(7)));
  EXPECT_EQ(first.cached, 0);
  for (int32_t last = 0; last < 5; ++last) {
    const Completion again = write(request_of(long_prompt(last)));
    EXPECT_EQ(again.replica, first.replica);
    EXPECT_EQ(again.cached, 64);
    EXPECT_EQ(again.tokens, text_of(long_prompt(last)));
  }
  // Prefixes with another salt or adapter do not match: such requests are distributed.
  EXPECT_NE(write(request_of(long_prompt(7), "salt")).replica, first.replica);
  SequenceRequest of_adapter = request_of(long_prompt(7));
  of_adapter.adapter = 0;
  EXPECT_NE(write(of_adapter).replica, first.replica);
  // Within limits: an overloaded replica gets relief.
  hold();
  std::vector<size_t> where(kReplicas);
  for (int32_t last = 0; last < 12; ++last) ++where[placed(request_of(long_prompt(last)))];
  EXPECT_EQ(std::ranges::count(where, 0u), 0) << where[0] << where[1] << where[2];
}

TEST_F(ReplicasTest, ComputeWhatBelongsTogetherOnOne) {
  hold();
  const SequenceId other = add(request_of({1}));
  std::vector<std::future<Completion>> completions(4);
  const std::vector<SequenceId> ids = engines.add_siblings(
      request_of({5}), completions.size(), [&](size_t i) { return listener(completions[i]); });
  const size_t one = engines.replica_of(ids.front());
  EXPECT_NE(one, engines.replica_of(other));
  for (const SequenceId id : ids) EXPECT_EQ(engines.replica_of(id), one);
  EXPECT_EQ(engines.replica_of(add(request_of({6}), nullptr, ids[2])), one);
  // Each of them counts there.
  EXPECT_NE(placed(request_of({7})), one);
  EXPECT_NE(placed(request_of({8})), one);
  EXPECT_NE(placed(request_of({9})), one);
  release();
  for (std::future<Completion>& end : completions) EXPECT_EQ(end.get().tokens, text_of({5}));
}

TEST_F(ReplicasTest, ForgetWhatIsCancelled) {
  hold();
  std::vector<SequenceId> ids;
  for (int32_t i = 0; i < 6; ++i) ids.push_back(add(request_of({i})));
  EXPECT_EQ(std::set<SequenceId>(ids.begin(), ids.end()).size(), 6u);
  const size_t freed = engines.replica_of(ids[1]);
  EXPECT_EQ(engines.replica_of(ids[4]), freed);
  engines.cancel(ids[1]);
  engines.cancel(ids[4]);
  engines.cancel(ids[4]);
  gates[freed].hold_after(1);
  // Sequences submitted together are released together, after the last one.
  for (int i = 0; i < 2; ++i) engines[freed].between_steps([] {});
  EXPECT_EQ(engines.counts()[freed].used_blocks, 0);
  for (int32_t i = 0; i < 2; ++i) EXPECT_EQ(placed(request_of({i})), freed);
  EXPECT_NE(placed(request_of({2})), freed);  // all have the same load
  release();
  for (const size_t i : {0, 2, 3, 5, 6, 7})
    EXPECT_EQ(ends[i].get().reason, FinishReason::kLength) << i;
}

TEST_F(ReplicasTest, GoOnWithoutOneThatCannot) {
  const Completion seen = write(request_of(long_prompt(1)));
  hold();
  std::vector<size_t> where;
  for (int32_t i = 0; i < 6; ++i) where.push_back(placed(request_of({i})));
  gates[seen.replica].fail();
  for (size_t i = 0; i < where.size(); ++i) {
    if (where[i] != seen.replica) continue;
    const Completion lost = ends[i + 1].get();
    EXPECT_EQ(lost.reason, FinishReason::kError);
    EXPECT_EQ(lost.error, "rank 3 lost");
    EXPECT_TRUE(lost.may_retry);
  }
  EXPECT_EQ(engines.failure().why, "");
  release();
  for (size_t i = 0; i < where.size(); ++i)
    if (where[i] != seen.replica) {
      EXPECT_EQ(ends[i + 1].get().tokens, text_of({static_cast<int32_t>(i)}));
    }
  for (int32_t i = 0; i < 6; ++i) EXPECT_NE(write(request_of({i})).replica, seen.replica);
  const Completion elsewhere = write(request_of(long_prompt(1)));
  EXPECT_NE(elsewhere.replica, seen.replica);
  // Once it has recovered it gets its share, but not for the prefixes that it has lost.
  engines[seen.replica].resume();
  settle();
  EXPECT_EQ(write(request_of(long_prompt(2))).replica, elsewhere.replica);
  hold();
  std::set<size_t> all;
  for (int32_t i = 0; i < 3; ++i) all.insert(placed(request_of({i})));
  EXPECT_EQ(all.size(), kReplicas);
}

TEST_F(ReplicasTest, FailTogetherOnly) {
  for (size_t i = 0; i < kReplicas; ++i) {
    EXPECT_EQ(engines.failure().why, "");
    engines[i].interrupt(concat("lost ", i));
  }
  EXPECT_EQ(engines.failure().why, "lost 0");
  const Completion refused = write(request_of({1}));
  EXPECT_EQ(refused.reason, FinishReason::kError);
  EXPECT_TRUE(refused.may_retry);
  engines[1].resume();
  settle();
  EXPECT_EQ(engines.failure().why, "");
  EXPECT_EQ(write(request_of({1})).replica, 1u);
}

TEST_F(ReplicasTest, ChangeWeightsOfAll) {
  write(request_of(long_prompt(1)));
  std::mutex mutex;
  std::multiset<size_t> changed;
  const auto change = [&](size_t replica) {
    const std::lock_guard lock(mutex);
    changed.insert(replica);
  };
  engines.change_weights(Handover::kWait, change);
  EXPECT_EQ(changed, (std::multiset<size_t>{0, 1, 2}));
  EXPECT_EQ(write(request_of(long_prompt(1))).cached, 0);
  // A failed replica does not prevent the change on the others, and is reported.
  engines[1].interrupt("lost");
  EXPECT_THROW(engines.change_weights(Handover::kKeep, change), Error);
  EXPECT_EQ(changed, (std::multiset<size_t>{0, 0, 1, 2, 2}));
}

// Two requests whose first sequences run on one replica each, and whose second ones are submitted
// to the other one while it waits for them.
TEST_F(ReplicasTest, ChangeWeightsBehindWholeRequests) {
  std::array<std::shared_ptr<WeightsHold>, 2> requests;
  std::array<SequenceId, 2> texts{};
  const auto text_of_request = [&](size_t i, SequenceId beside) {
    return add(request_of({static_cast<int32_t>(i)}), requests[i], beside);
  };
  const auto ends_now = [&] {
    EXPECT_EQ(ends.back().wait_for(std::chrono::seconds(60)), std::future_status::ready);
  };
  for (size_t i = 0; i < 2; ++i) {
    requests[i] = std::make_shared<WeightsHold>();
    texts[i] = text_of_request(i, 0);
    ends_now();
  }
  EXPECT_NE(engines.replica_of(texts[0]), engines.replica_of(texts[1]));
  std::atomic<int> changed = 0;
  std::future<void> change = std::async(std::launch::async, [&] {
    engines.change_weights(Handover::kWait, [&](size_t) { ++changed; });
  });
  // Until a sequence waits for the change; otherwise it would finish in a few steps.
  SequenceId late = 0;
  const auto waits = [&] {
    late = add(request_of({9}));
    for (int step = 0; step < 8; ++step) settle();
    return ends.back().wait_for(std::chrono::seconds(0)) != std::future_status::ready;
  };
  for (int tries = 0; !waits() && changed == 0 && tries < 10'000; ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::future<Completion>& late_end = ends.back();
  ASSERT_EQ(changed, 0);  // nor on the replica without sequences of these requests
  for (size_t i = 0; i < 2; ++i) {
    text_of_request(i, texts[1 - i]);
    ends_now();
  }
  EXPECT_EQ(changed, 0);
  int64_t waiting = 0;
  for (const EngineCounts& counts : engines.counts()) waiting += counts.scheduler.waiting;
  EXPECT_EQ(waiting, 1);
  EXPECT_LT(engines.replica_of(late), kReplicas);
  for (auto& request : requests) request.reset();
  change.get();
  EXPECT_EQ(changed, 3);
  EXPECT_EQ(late_end.get().tokens, text_of({9}));
}

TEST_F(ReplicasTest, StopAll) {
  hold();
  for (int32_t i = 0; i < 6; ++i) add(request_of({i}));
  std::thread stops([&] { engines.stop(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  release();
  stops.join();
  const Completion late = write(request_of({7}));
  EXPECT_TRUE(late.reason == FinishReason::kError && late.may_retry) << late.error;
  for (std::future<Completion>& end : ends)
    if (end.valid()) {
      const Completion completion = end.get();
      EXPECT_TRUE(completion.reason == FinishReason::kLength || completion.may_retry)
          << completion.error;
    }
  EXPECT_NE(engines.failure().why, "");
}

}  // namespace
}  // namespace trireme::test_replicas
