// Layers with windows keep only the last blocks of a sequence, and no text depends on it.
#include <gtest/gtest.h>

#include <random>

#include "tests/serving/scheduler/slow_rule.h"
#include "tests/serving/scheduler/text_server.h"

namespace trireme::test_window_tables {
namespace {

using test::alone;
using test::kVocabulary;
using test::prompt_of;
constexpr int64_t kBlock = 4;
using Windows = std::vector<int64_t>;

using Server = test::TextServer;

// An engine ends where a plan is empty although sequences run.
void step(Server& server) {
  server.scheduler.settle();
  if (server.scheduler.idle()) return;
  ASSERT_TRUE(server.step());
}

void run(Server& server) {
  while (!server.scheduler.idle()) {
    step(server);
    ASSERT_LT(server.steps, 100000);
  }
  EXPECT_EQ(server.pool.used(), 0);
}

BatchingConfig config_of(const Windows& windows, int64_t sequences, int64_t tokens,
                         int64_t length) {
  return {.max_sequences = sequences,
          .max_step_tokens = tokens,
          .max_model_len = length,
          .windows = windows};
}

int64_t longest(const BatchingConfig& config) {
  int64_t blocks = 0;
  for (const int64_t window : config.windows)
    blocks += max_table_blocks(config.max_model_len, window, kBlock, config.max_step_tokens);
  return blocks;
}

TEST(WindowTables, DropBlocksAtMultiplesOfTheCut) {
  EXPECT_EQ(dropped_blocks(1000, 0, 16), 0);
  EXPECT_EQ(dropped_blocks(99, 100, 16), 0);
  EXPECT_EQ(dropped_blocks(100 + 30, 100, 16), 0);
  EXPECT_EQ(dropped_blocks(100 + 31, 100, 16), 2);
  EXPECT_EQ(dropped_blocks(100 + 63, 100, 32), 2);
  EXPECT_EQ(dropped_blocks(100 + 95, 100, 64), 1);  // blocks longer than the cut
  EXPECT_EQ(max_table_blocks(1000, 0, 16, 512), 63);
  EXPECT_EQ(max_table_blocks(1000, 2000, 16, 512), 63);
  EXPECT_EQ(max_table_blocks(1000, 100, 16, 1), (100 + 32 - 2 + 1 + 15) / 16);
  EXPECT_EQ(dropped_blocks(47, -48, 16), 0);
  EXPECT_EQ(dropped_blocks(48, -48, 16), 3);
  EXPECT_EQ(dropped_blocks(150, -48, 16), 9);
  EXPECT_EQ(max_table_blocks(1000, -48, 16, 1), 3);
  EXPECT_EQ(max_table_blocks(1000, -48, 16, 2), 4);
  EXPECT_EQ(max_table_blocks(20, -48, 16, 512), 2);
  for (int64_t past = 0; past < 500; ++past)
    for (const int64_t window : {1, 7, 31, 32, 33, 100}) {
      const int64_t first = dropped_blocks(past, window, 16) * 16;
      EXPECT_LE(first, std::max<int64_t>(past - window + 1, 0));
      EXPECT_EQ(first % 32, 0);
      EXPECT_GT(first + 32, past - window + 1);
    }
}

TEST(WindowTables, AtMostTheWindowIsHeldWhileTokensAreGenerated) {
  const Windows windows = {0, 20, 20};
  BatchingConfig config = config_of(windows, 1, 64, 4000);
  Server server(config, longest(config));
  const auto s = server.add(prompt_of(3000, 1), 900);
  while (s->generated() == 0) step(server);
  EXPECT_LE(server.max_used, 750 + 2 * max_table_blocks(4000, 20, kBlock, 64));
  while (s->generated() < 900) {
    step(server);
    const int64_t length = s->computed;
    const int64_t held = ceil_div(length, kBlock), cut = dropped_blocks(length - 1, 20, kBlock);
    ASSERT_EQ(server.pool.used(), s->generated() == 900 ? 0 : held + 2 * (held - cut)) << length;
    EXPECT_LE(held - cut, max_table_blocks(4000, 20, kBlock, 1));
  }
  EXPECT_EQ(s->tokens, alone(prompt_of(3000, 1), 900, windows));
  EXPECT_EQ(server.pool.used(), 0);
}

TEST(WindowTables, MoreSequencesFitThanWithAllTokens) {
  const auto at_a_time = [](const Windows& windows) {
    Server server(config_of(windows, 64, 256, 400), 1000);
    for (int32_t n = 0; n < 64; ++n) server.add(prompt_of(300, n), 50);
    run(server);
    return server.executor.max_running_sequences;
  };
  EXPECT_GE(at_a_time({0, 8, 8, 8}), 2 * at_a_time({0, 0, 0, 0}));
}

TEST(WindowTables, FindPrefixesWithTheBlocksOfTheirWindows) {
  for (const Windows& windows : {Windows{0, 20}, {0, 20, 9}, {20}, {9, 20}, {0, -16}, {-16}}) {
    BatchingConfig config = config_of(windows, 4, 64, 400);
    Server server(config, 2 * longest(config) + 50);
    server.add(prompt_of(202, 1), 2);
    run(server);
    const auto again = server.add(prompt_of(202, 1), 20);
    run(server);
    EXPECT_EQ(again->cached_prompt, 200);
    EXPECT_EQ(again->tokens, alone(prompt_of(202, 1), 20, windows));
    // A text that differs from the middle on.
    std::vector<int32_t> other = prompt_of(202, 1);
    for (size_t i = 150; i < other.size(); ++i) other[i] = 3;
    const auto part = server.add(other, 20);
    run(server);
    EXPECT_EQ(part->cached_prompt, 148);
    EXPECT_EQ(part->tokens, alone(other, 20, windows));
  }
}

// The blocks of a window are reused before those of the whole text: the text is known, but must be
// computed from where its windows are.
TEST(WindowTables, AWindowThatIsLostIsComputedAgain) {
  const Windows windows = {0, 20};
  BatchingConfig config = config_of(windows, 1, 32, 400);
  Server server(config, longest(config));
  server.add(prompt_of(200, 1), 100);
  run(server);
  const auto other = server.add(prompt_of(30, 2), 4);
  run(server);
  const auto again = server.add(prompt_of(200, 1), 100);
  run(server);
  EXPECT_EQ(again->tokens, alone(prompt_of(200, 1), 100, windows));
  EXPECT_LT(again->cached_prompt, 200);
}

// Two sequences share the blocks that one of them drops: they do not become free.
TEST(WindowTables, SharedBlocksThatAreDroppedStopNobody) {
  const Windows windows = {0, 40, 40};
  BatchingConfig config = config_of(windows, 8, 16, 300);
  for (int64_t more = 0; more < 60; more += 4) {
    Server server(config, longest(config) + more);
    server.add(prompt_of(120, 1), 1);
    run(server);
    std::vector<std::shared_ptr<Sequence>> all;
    for (int32_t n = 0; n < 8; ++n) {
      std::vector<int32_t> prompt = prompt_of(120, 1);
      for (int32_t i = 0; i < 100; ++i) prompt.push_back((n * i) % kVocabulary);
      all.push_back(server.add(prompt, 30));
    }
    run(server);
    for (const auto& s : all) {
      const std::vector<int32_t> prompt(s->tokens.begin(), s->tokens.begin() + s->prompt_tokens);
      EXPECT_EQ(s->tokens, alone(prompt, 30, windows));
    }
  }
}

// One prompt lacks blocks, the other sequence waits for its mask: it gives its blocks to the
// prompt.
TEST(WindowTables, APromptWithoutBlocksGetsThoseOfTheLastSequence) {
  const Windows windows = {0, 40};
  BatchingConfig config = config_of(windows, 2, 16, 300);
  Server server(config, 2 * longest(config));
  const auto rule = std::make_shared<test::SlowRule>();
  rule->masks = 1;
  const auto last = server.add(prompt_of(90, 2), 30, 1, "", rule);
  step(server);
  const auto first = server.add(prompt_of(200, 1), 5);
  while (first->computed < 60) step(server);
  EXPECT_EQ(last->generated(), 1);
  // Dropped blocks of the prompt do not become free, as if others used them.
  std::vector<int32_t> taken = first->tables[1].blocks;
  for (const int32_t block : taken) server.pool.share(block);
  while (server.pool.free() > 0) taken.push_back(server.pool.take());
  while (first->generated() == 0) step(server);
  EXPECT_EQ(last->state, Sequence::State::kWaiting);
  EXPECT_EQ(server.scheduler.counts().preemptions, 1);
  for (const int32_t block : taken) server.pool.release(block);
  rule->masks = 100;
  run(server);
  EXPECT_EQ(first->tokens, alone(prompt_of(200, 1), 5, windows));
  EXPECT_EQ(last->tokens, alone(prompt_of(90, 2), rule->length, windows));
}

// The blocks that a prompt drops are not free, because a sequence that generates shares them; the
// prompt comes first in order.
TEST(WindowTables, APromptDoesNotWaitForSequencesAfterIt) {
  const Windows windows = {0, 80, 80, 80};
  BatchingConfig config = config_of(windows, 8, 16, 300);
  int64_t preemptions = 0;
  for (int64_t more = 0; more < 120; more += 4) {
    Server server(config, longest(config) + more);
    std::vector<int32_t> longer = prompt_of(120, 1);
    for (int32_t i = 0; i < 150; ++i) longer.push_back(i * 3 % kVocabulary);
    server.add(prompt_of(120, 1), 1);
    run(server);
    const auto after = server.add(prompt_of(121, 1), 60, 1);
    while (after->generated() < 2) step(server);
    const auto first = server.add(longer, 2);
    while (first->state != Sequence::State::kEnded) {
      const bool runs = first->state == Sequence::State::kRunning;
      const int64_t before = first->computed;
      step(server);
      const bool stays = runs && first->state == Sequence::State::kRunning;
      EXPECT_TRUE(!stays || first->computed > before);
    }
    run(server);
    EXPECT_EQ(first->tokens, alone(longer, 2, windows));
    EXPECT_EQ(after->tokens, alone(prompt_of(121, 1), 60, windows));
    preemptions += server.scheduler.counts().preemptions;
  }
  EXPECT_GT(preemptions, 0);
}

TEST(WindowTables, ATextIsThatOfTheSequenceAloneUnderAnyStorm) {
  int64_t hits = 0, preemptions = 0, accepted = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    std::mt19937_64 random(seed);
    const auto draw = [&](int64_t below) {
      return static_cast<int64_t>(random() % static_cast<uint64_t>(below));
    };
    const Windows kinds[] = {{0, 6}, {0, 33, 33}, {5}, {5, 40}, {0, 1, 70}, {0, -20, -20}};
    const Windows& windows = kinds[seed % 6];
    BatchingConfig config = config_of(windows, 1 + draw(8), 0, 200);
    config.max_step_tokens = config.max_sequences + draw(60);
    config.prefix_caching = draw(4) > 0;
    if (draw(2) == 0)
      config.speculation = {.tokens = 4, .prompt_lookup_max = 2, .prompt_lookup_min = 1};
    Server server(config, longest(config) + draw(60));
    std::vector<std::shared_ptr<Sequence>> all;
    for (int n = 0; n < 40; ++n) {
      const int64_t first = draw(3), length = 1 + draw(150);
      all.push_back(server.add(prompt_of(length, static_cast<int32_t>(first)), 1 + draw(49),
                               static_cast<int>(draw(3))));
      for (int64_t steps = draw(6); steps > 0 && !server.scheduler.idle(); --steps) step(server);
      if (draw(8) > 0) continue;
      server.scheduler.cancel(*all[static_cast<size_t>(draw(std::ssize(all)))]);
    }
    run(server);
    for (const auto& s : all) {
      const std::vector<int32_t> prompt(s->tokens.begin(), s->tokens.begin() + s->prompt_tokens);
      ASSERT_EQ(s->tokens, alone(prompt, s->generated(), windows)) << "seed " << seed;
    }
    hits += server.scheduler.counts().prefix_hits;
    preemptions += server.scheduler.counts().preemptions;
    accepted += server.scheduler.counts().accepted_tokens;
  }
  EXPECT_GT(hits, 1000);
  EXPECT_GT(preemptions, 50);
  EXPECT_GT(accepted, 50);
}

}  // namespace
}  // namespace trireme::test_window_tables
