// Completions by a scheduler and a tiny model's executor, the same on every rank of a layout.
#pragma once

#include <gtest/gtest.h>

#include <map>

#include "parallel/comm/world.h"
#include "serving/engine/model_drafting.h"
#include "serving/scheduler/scheduler.h"
#include "tests/serving/tiny_model.h"
#include "transformer/pass/sharding.h"

namespace trireme::test {

inline constexpr int64_t kBlockTokens = 4, kLength = 40;

struct TextRequest {
  std::vector<int32_t> prompt;
  int64_t count = 0;
  RowSamplingParams sampling;
};

struct Text {
  std::vector<int32_t> tokens;
  std::vector<double> logprobs, prompt;
};

// Model of one rank of a layout.
struct Rank {
  Rank(const ModelConfig& config, const ParallelSizes& sizes, Communicator& world, DType dtype,
       int64_t length = kLength)
      : groups(world, sizes, kv_head_copies(config, sizes.tp)),
        ctx(1, "test"),
        model(config, dtype, groups.layout,
              chunks_of(split_layers(config.num_layers, sizes.pp, {}), groups.layout.pp)),
        store(model.parameters(), dtype) {
    model.reserve_positions(ctx, length);
    store.allocate(ctx, false);
    store.initialize(ctx, 5);
  }
  Groups groups;
  Ctx ctx;
  Model model;
  ParameterStore store;
  std::optional<KvType> kv_type = {};  // of the KV cache
};

inline std::vector<Text> served(Rank& rank, const std::vector<TextRequest>& requests,
                                BatchingConfig config, int64_t blocks, bool prompt_logprobs,
                                bool deterministic = false, SchedulerCounts* counts = nullptr,
                                std::unique_ptr<Drafter> drafter = {}) {
  if (config.max_model_len == 0) config.max_model_len = kLength;
  KvBlockPool pool(blocks, kBlockTokens, 1);
  Scheduler scheduler(config, pool, std::move(drafter));
  StepLimits limits{.tokens = config.max_step_tokens, .sequences = config.max_sequences};
  limits.length = config.max_model_len;
  limits.blocks = blocks;
  limits.block_tokens = kBlockTokens;
  limits.windows = config.windows;
  limits.deterministic = deterministic;
  limits.kv_type = rank.kv_type;
  ModelExecutor executor(rank.model, rank.store, rank.ctx, &rank.groups, {.limits = limits});
  std::vector<Text> texts(requests.size());
  std::map<const Sequence*, Text*> of;
  size_t added = 0;
  const int64_t at_a_time = std::max<int64_t>(2, config.max_sequences / 4);
  while (added < requests.size() || !scheduler.idle()) {
    for (int64_t n = 0; n < at_a_time && added < requests.size(); ++n, ++added) {
      auto params = std::make_shared<SamplingParams>();
      params->sampling = requests[added].sampling;
      params->top_logprobs = 2;
      if (prompt_logprobs) params->prompt_logprobs = 0;
      const auto sequence =
          std::make_shared<Sequence>(SequenceRequest{.prompt = requests[added].prompt,
                                                     .sampling_params = params,
                                                     .max_tokens = requests[added].count});
      of[sequence.get()] = &texts[added];
      scheduler.add(sequence);
    }
    const SchedulerOutput plan = scheduler.next();
    for (Progress& p : scheduler.done(plan, executor.execute(plan))) {
      Text& text = *of.at(p.sequence.get());
      for (const OutputToken& token : p.prompt) text.prompt.push_back(token.logprob);
      for (const OutputToken& token : p.tokens) {
        EXPECT_EQ(token.top.size(), 2u);
        text.tokens.push_back(token.id);
        text.logprobs.push_back(token.logprob);
      }
    }
  }
  EXPECT_EQ(pool.used(), 0);
  if (counts != nullptr) *counts = scheduler.counts();
  return texts;
}

// Drafter with a rank's whole model, for the sequences of this configuration.
inline std::unique_ptr<Drafter> drafter_of(Rank& rank, const BatchingConfig& config) {
  StepLimits limits{.tokens = config.max_step_tokens, .sequences = config.max_sequences};
  limits.length = config.max_model_len;
  limits.block_tokens = kBlockTokens;
  limits.blocks = limits.sequences * limits.blocks_of_sequence();
  return make_model_drafter(rank.model, rank.store, rank.ctx, {.limits = limits});
}

}  // namespace trireme::test
