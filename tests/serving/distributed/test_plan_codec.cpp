// Plans and outcomes are decoded as encoded; any other bytes are refused before a rank runs them.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "serving/distributed/plan_fields.h"
#include "serving/scheduler/block_table.h"
#include "tests/serving/distributed/plans.h"

namespace trireme::test_plan_codec {
namespace {

using test::kPlanBounds;
using test::kWindowBounds;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(PlanCodec, GivesBackEveryPlanAndOutcome) {
  PlanDecoder decoder(kPlanBounds);
  int64_t starts = 0, histories = 0, asked = 0, plans = 0;
  test::for_each_plan(60, [&](const SchedulerOutput& plan, const StepOutput& outcome) {
    const std::vector<std::byte> bytes = encode_plan(plan);
    EXPECT_LE(std::ssize(bytes), kPlanBounds.max_bytes());
    const SchedulerOutput again = decoder.decode(bytes);
    EXPECT_EQ(encode_plan(again), bytes);
    EXPECT_EQ(again.tokens, plan.tokens);
    EXPECT_EQ(again.blocks, plan.blocks);
    ASSERT_EQ(again.starts.size(), plan.starts.size());
    for (size_t i = 0; i < plan.starts.size(); ++i) {
      const SamplingParams &a = *again.starts[i].sampling_params,
                           &b = *plan.starts[i].sampling_params;
      EXPECT_EQ(members(a.sampling), members(b.sampling));
      EXPECT_EQ(a.bad_words, b.bad_words);
      EXPECT_EQ(a.logit_bias, b.logit_bias);
      EXPECT_EQ(a.prompt_logprobs, b.prompt_logprobs);
      histories += std::ssize(again.starts[i].history);
    }
    ASSERT_EQ(again.sequences.size(), plan.sequences.size());
    for (size_t i = 0; i < plan.sequences.size(); ++i) {
      EXPECT_EQ(members(again.sequences[i]), members(plan.sequences[i]));
      asked += plan.sequences[i].scored;
    }
    const std::vector<std::byte> encoded = encode_output(outcome);
    EXPECT_EQ(encode_output(decode_output(encoded, plan, kPlanBounds.ids)), encoded);
    starts += std::ssize(plan.starts);
    ++plans;
  });
  EXPECT_GE(starts, 60);
  EXPECT_GT(histories, 0);
  EXPECT_GT(asked, 0);
  EXPECT_GT(plans, 100);
}

TEST(PlanCodec, CutsTheTablesOfWindows) {
  PlanDecoder decoder(kWindowBounds);
  int64_t cut = 0;
  const auto refused = [](SchedulerOutput plan, auto&& change) {
    change(plan.tables);
    try {
      decode_plan(encode_plan(plan), kWindowBounds);
    } catch (const BadMessage&) {
      return true;
    }
    return false;
  };
  test::for_each_plan(
      60,
      [&](const SchedulerOutput& plan, const StepOutput&) {
        const std::vector<std::byte> bytes = encode_plan(plan);
        EXPECT_EQ(encode_plan(decoder.decode(bytes)), bytes);
        for (size_t n = 0; n < plan.tables.size(); ++n) {
          const TableStep& table = plan.tables[n];
          const int32_t past = plan.sequences[n / 2].past;
          EXPECT_EQ(table.first, n % 2 == 0 ? 0 : dropped_blocks(past, 6, 4));
          EXPECT_TRUE(refused(plan, [&](auto& tables) { ++tables[n].first; }));
          EXPECT_TRUE(refused(plan, [&](auto& tables) { tables[n].first = -1; }));
          if (table.first == 0) continue;
          // Too few: attention has no room for them.
          EXPECT_TRUE(refused(plan, [&](auto& tables) { tables[n].first = 0; }));
          ++cut;
        }
      },
      kWindowBounds);
  EXPECT_GT(cut, 100);
}

TEST(PlanCodec, RefusesTablesThatDoNotFollowEachOther) {
  int64_t tried = 0;
  PlanDecoder decoder(kWindowBounds);
  test::for_each_plan(
      20,
      [&](const SchedulerOutput& plan, const StepOutput&) {
        for (size_t n = 1; n < plan.tables.size(); n += 2) {
          if (plan.tables[n].first == 0 || plan.tables[n].kept_blocks == 0) continue;
          SchedulerOutput other = plan;
          other.tables[n].first -= 1;  // a block that was dropped before, or one too many
          PlanDecoder here = decoder;
          EXPECT_THROW(here.decode(encode_plan(other)), BadMessage);
          ++tried;
        }
        decoder.decode(encode_plan(plan));
      },
      kWindowBounds);
  EXPECT_GT(tried, 10);
}

// A prompt of nine tokens with every option of a plan, and a sequence that continues.
SchedulerOutput whole_plan() {
  SchedulerOutput plan;
  plan.number = 5;
  auto params = std::make_shared<SamplingParams>();
  params->stop_token_ids = {1};
  params->logit_bias = {{3, 1.0}};
  params->bad_words = {{4, 5}};
  plan.starts.push_back({.slot = 2,
                         .prompt_tokens = 20,
                         .history = {1, 2, 3},
                         .generated = 1,
                         .sampling_params = params});
  plan.sequences.push_back(
      {.slot = 1, .first_token = 0, .tokens = 1, .past = 7, .samples = true, .mask = 1});
  plan.sequences.push_back({.slot = 2,
                            .first_token = 1,
                            .tokens = 9,
                            .past = 0,
                            .first_scored = 2,
                            .scored = 7,
                            .following = 6});
  plan.tables = {{.kept_blocks = 2}, {.blocks = 3}};
  plan.tokens = {9, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  plan.blocks = {0, 1, 2};
  plan.masks = {~0u, ~0u, 1u, 2u};
  return plan;
}

SamplingParams& params_of(SchedulerOutput& plan) {
  return const_cast<SamplingParams&>(*plan.starts[0].sampling_params);
}

TEST(PlanCodec, WantsAMaskAfterEachDraftToken) {
  SchedulerOutput plan = whole_plan();
  plan.sequences[0].past = 6;
  plan.sequences[0].tokens = 2;
  plan.sequences[0].draft_tokens = 1;
  plan.sequences[0].mask = 0;
  plan.sequences[1].first_token = 2;
  plan.tokens.insert(plan.tokens.begin(), 9);
  EXPECT_NO_THROW(decode_plan(encode_plan(plan), kPlanBounds));
  plan.sequences[0].mask = 1;
  EXPECT_THROW(decode_plan(encode_plan(plan), kPlanBounds), BadMessage);
}

TEST(PlanCodec, RefusesEveryNumberThatIsOutOfBounds) {
  EXPECT_NO_THROW(decode_plan(encode_plan(whole_plan()), kPlanBounds));
  const std::vector<std::function<void(SchedulerOutput&)>> mistakes = {
      [](SchedulerOutput& p) { p.sequences.clear(); },
      [](SchedulerOutput& p) { p.tokens[3] = 50; },
      [](SchedulerOutput& p) { p.tokens[3] = -1; },
      [](SchedulerOutput& p) { p.tokens.push_back(1); },
      [](SchedulerOutput& p) { p.tokens.resize(13, 1); },
      [](SchedulerOutput& p) { p.blocks[1] = 24; },
      [](SchedulerOutput& p) { p.blocks[1] = -1; },
      [](SchedulerOutput& p) { p.blocks.pop_back(); },
      [](SchedulerOutput& p) { p.masks.pop_back(); },
      [](SchedulerOutput& p) { p.sequences[0].mask = 2; },
      [](SchedulerOutput& p) { p.sequences[0].mask = -2; },
      [](SchedulerOutput& p) { p.sequences[0].slot = 4; },
      [](SchedulerOutput& p) { p.sequences[0].slot = -1; },
      [](SchedulerOutput& p) { p.sequences[0].slot = 2; },
      [](SchedulerOutput& p) { p.sequences[0].tokens = 0; },
      [](SchedulerOutput& p) { p.sequences[0].past = -1; },
      [](SchedulerOutput& p) { p.sequences[0].past = 8; },
      [](SchedulerOutput& p) { p.sequences[0].past = std::numeric_limits<int32_t>::max(); },
      [](SchedulerOutput& p) { p.tables.pop_back(); },
      [](SchedulerOutput& p) { p.tables.emplace_back(); },
      [](SchedulerOutput& p) { p.tables[0].first = 1; },
      [](SchedulerOutput& p) { p.tables[0].first = -1; },
      [](SchedulerOutput& p) { p.tables[0].kept_blocks = 11; },
      [](SchedulerOutput& p) { p.tables[0].kept_blocks = -1; },
      [](SchedulerOutput& p) { p.tables[0].blocks = -1; },
      [](SchedulerOutput& p) { p.sequences[0].first_token = 1; },
      [](SchedulerOutput& p) { p.tables[1].first_block = 1; },
      [](SchedulerOutput& p) { p.sequences[1].tokens = std::numeric_limits<int32_t>::max(); },
      [](SchedulerOutput& p) { p.sequences[1].scored = 8; },
      [](SchedulerOutput& p) { p.sequences[1].scored = -1; },
      [](SchedulerOutput& p) { p.sequences[1].first_scored = -1; },
      [](SchedulerOutput& p) { p.sequences[1].following = 50; },
      [](SchedulerOutput& p) { p.sequences[1].following = -1; },
      [](SchedulerOutput& p) { p.starts[0].slot = 4; },
      [](SchedulerOutput& p) { p.starts.push_back(p.starts[0]); },
      [](SchedulerOutput& p) { p.starts[0].prompt_tokens = 41; },
      [](SchedulerOutput& p) { p.starts[0].prompt_tokens = 0; },
      [](SchedulerOutput& p) { p.starts[0].generated = -1; },
      [](SchedulerOutput& p) { p.starts[0].history[1] = 50; },
      [](SchedulerOutput& p) { p.starts[0].history.resize(41, 1); },
      [](SchedulerOutput& p) { params_of(p).sampling.temperature = kNan; },
      [](SchedulerOutput& p) { params_of(p).sampling.top_k = -1; },
      [](SchedulerOutput& p) { params_of(p).sampling.top_p = -0.5; },
      [](SchedulerOutput& p) { params_of(p).sampling.min_p = kNan; },
      [](SchedulerOutput& p) { params_of(p).repetition_penalty = 0; },
      [](SchedulerOutput& p) { params_of(p).frequency_penalty = kNan; },
      [](SchedulerOutput& p) { params_of(p).presence_penalty = kNan; },
      [](SchedulerOutput& p) { params_of(p).top_logprobs = 1025; },
      [](SchedulerOutput& p) { params_of(p).prompt_logprobs = -2; },
      [](SchedulerOutput& p) { params_of(p).min_tokens = -1; },
      [](SchedulerOutput& p) { params_of(p).stop_token_ids = {-1}; },
      [](SchedulerOutput& p) {
        params_of(p).logit_bias = {{-1, 0.0}};
      },
      [](SchedulerOutput& p) {
        params_of(p).logit_bias = {{1, kNan}};
      },
      [](SchedulerOutput& p) { params_of(p).bad_words = {{}}; },
      [](SchedulerOutput& p) {
        params_of(p).bad_words = {{1, -1}};
      },
  };
  for (size_t i = 0; i < mistakes.size(); ++i) {
    SchedulerOutput plan = whole_plan();
    mistakes[i](plan);
    EXPECT_THROW(decode_plan(encode_plan(plan), kPlanBounds), BadMessage) << "mistake " << i;
  }
}

// Extreme options of one request must not affect the others.
TEST(PlanCodec, TakesAllThatRequestsMayAskFor) {
  const std::vector<std::function<void(SamplingParams&)>> extremes = {
      [](SamplingParams& c) {
        c.sampling = {.temperature = 2, .top_k = 1'000'000'000, .top_p = 0};
      },
      [](SamplingParams& c) { c.sampling = {.temperature = 0, .min_p = 1, .seed = ~uint64_t{0}}; },
      [](SamplingParams& c) { c.repetition_penalty = 0.01; },
      [](SamplingParams& c) { c.repetition_penalty = 100; },
      [](SamplingParams& c) { c.frequency_penalty = c.presence_penalty = -2; },
      [](SamplingParams& c) { c.top_logprobs = c.prompt_logprobs = 128; },  // more than all ids
      [](SamplingParams& c) { c.min_tokens = 1'000'000'000; },
      [](SamplingParams& c) {
        c.stop_token_ids = {1'000'000};
      },  // the tokenizer may have more ids than the model
      [](SamplingParams& c) { c.bad_words.assign(2048, std::vector<int32_t>(256, 7)); },
  };
  for (size_t i = 0; i < extremes.size(); ++i) {
    SchedulerOutput plan = whole_plan();
    extremes[i](params_of(plan));
    const std::vector<std::byte> bytes = encode_plan(plan);
    EXPECT_NO_THROW(decode_plan(bytes, kPlanBounds)) << i;
    EXPECT_LE(std::ssize(bytes) * kPlanBounds.slots, kPlanBounds.max_bytes()) << i;
  }
}

TEST(PlanCodec, RefusesWhatIsCutOffOrLongerAndTakesAnyBytes) {
  std::vector<std::byte> bytes = encode_plan(whole_plan());
  for (size_t n = 0; n < bytes.size(); ++n)
    EXPECT_THROW(decode_plan(std::span(bytes).first(n), kPlanBounds), BadMessage) << n;
  // Any flipped bit: refused, or another plan within the bounds.
  int refused = 0;
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::vector<std::byte> other = bytes;
    other[bit / 8] ^= std::byte{1} << (bit % 8);
    try {
      EXPECT_EQ(encode_plan(decode_plan(other, kPlanBounds)), other);
    } catch (const BadMessage&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
  bytes.push_back({});
  EXPECT_THROW(decode_plan(bytes, kPlanBounds), BadMessage);
  // A list length for which a decoder would otherwise allocate memory.
  const std::vector<std::byte> long_list(64, std::byte{0xFF});
  EXPECT_THROW(decode_plan(long_list, kPlanBounds), BadMessage);
}

TEST(PlanCodec, RefusesPlansThatDoNotFollowEachOther) {
  SchedulerOutput first = whole_plan(), next = whole_plan();
  first.sequences.erase(first.sequences.begin());
  first.sequences[0].first_token = 0;
  first.tables.erase(first.tables.begin());
  first.tokens.erase(first.tokens.begin());
  next.starts.clear();
  next.number = 6;
  next.sequences = {{.slot = 2, .tokens = 2, .past = 9, .samples = true}};
  next.tables = {{.kept_blocks = 3}};
  next.tokens = {1, 2};
  next.blocks.clear();
  const auto refused = [&](const SchedulerOutput& second) {
    PlanDecoder decoder(kPlanBounds);
    decoder.decode(encode_plan(first));
    try {
      decoder.decode(encode_plan(second));
    } catch (const BadMessage&) {
      return true;
    }
    return false;
  };
  EXPECT_FALSE(refused(next));
  SchedulerOutput late = next, never = next, other = next;
  late.number = 7;
  EXPECT_TRUE(refused(late));
  never.sequences[0].slot = 3;
  EXPECT_TRUE(refused(never));
  other.tables[0].kept_blocks = 4;
  EXPECT_TRUE(refused(other));
  EXPECT_TRUE(refused(first));
  // Nothing has entered slot 1 before.
  EXPECT_THROW(PlanDecoder(kPlanBounds).decode(encode_plan(whole_plan())), BadMessage);
}

TEST(PlanCodec, RefusesOutcomesOfOtherPlans) {
  const SchedulerOutput plan = whole_plan();
  StepOutput good{.number = 5,
                  .sampled = {{.id = 3, .logprob = -1, .top = {{3, -1}}}},
                  .prompt = {},
                  .embeddings = {}};
  good.prompt.emplace_back(7);
  const auto refused = [&](const std::function<void(StepOutput&)>& mistake) {
    StepOutput outcome = good;
    mistake(outcome);
    try {
      decode_output(encode_output(outcome), plan, kPlanBounds.ids);
    } catch (const BadMessage&) {
      return true;
    }
    return false;
  };
  EXPECT_FALSE(refused([](StepOutput&) {}));
  for (const int32_t none : {kNotFinite, kNothingLeft})
    EXPECT_FALSE(refused([=](StepOutput& o) { o.sampled[0].id = none; })) << none;
  EXPECT_TRUE(refused([](StepOutput& o) { o.sampled[0].id = kNothingLeft - 1; }));
  EXPECT_TRUE(refused([](StepOutput& o) { o.number = 4; }));
  EXPECT_TRUE(refused([](StepOutput& o) { o.sampling_seconds.push_back(0); }));
  EXPECT_TRUE(refused([](StepOutput& o) { o.total_sampling_seconds = -1; }));
  EXPECT_TRUE(refused([](StepOutput& o) { o.total_sampling_seconds = std::nan(""); }));
  EXPECT_TRUE(refused([](StepOutput& o) { o.sampled.clear(); }));
  EXPECT_TRUE(refused([](StepOutput& o) { o.sampled[0].id = 50; }));
  EXPECT_TRUE(refused([](StepOutput& o) { o.sampled[0].top[0].id = -1; }));
  EXPECT_TRUE(refused([](StepOutput& o) { o.prompt.clear(); }));
  EXPECT_TRUE(refused([](StepOutput& o) { o.prompt[0].pop_back(); }));
}

}  // namespace
}  // namespace trireme::test_plan_codec
