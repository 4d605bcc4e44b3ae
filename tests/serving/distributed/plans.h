// Scheduler plans of every kind.
#pragma once

#include <random>

#include "serving/scheduler/scheduler.h"
#include "tests/serving/distributed/plan_bounds.h"
#include "tests/serving/scheduler/recorded_texts.h"

namespace trireme::test {

inline std::shared_ptr<const SamplingParams> some_sampling_params(std::mt19937& random) {
  auto params = std::make_shared<SamplingParams>();
  params->sampling = {.temperature = 0.5,
                      .top_k = 7,
                      .top_p = 0.9,
                      .min_p = 0.01,
                      .seed = random(),
                      .typical_p = 0.95};
  if (random() % 2 == 0) params->prompt_logprobs = 0;
  if (random() % 2 == 0) return params;
  params->repetition_penalty = 1.25;
  params->frequency_penalty = -0.5;
  params->presence_penalty = 0.125;
  params->top_logprobs = 3;
  params->min_tokens = 2;
  params->stop_token_ids = {1, 2};
  params->logit_bias = {{3, -100}, {4, 0.5}};
  params->bad_words = {{5}, {6, 7}};
  return params;
}

// Runs `count` sequences on RecordedTexts and calls `visit` with each plan and its outcome.
template <class Visit>
void for_each_plan(int count, const Visit& visit, const PlanBounds& b = kPlanBounds) {
  std::mt19937 random(11);
  KvBlockPool pool(b.blocks, b.block_tokens, 7);
  Scheduler scheduler({.max_sequences = b.slots,
                       .max_step_tokens = b.tokens,
                       .max_model_len = b.length,
                       .windows = b.windows},
                      pool);
  RecordedTexts executor(b.blocks, b.block_tokens, static_cast<int32_t>(b.ids), b.windows);
  for (int added = 0; added < count || !scheduler.idle();) {
    if (added < count && random() % 3 == 0) {
      ++added;
      SequenceRequest request;
      request.prompt.resize(1 + random() % (static_cast<size_t>(b.length) / 2));
      for (int32_t& id : request.prompt) id = static_cast<int32_t>(random() % 50);
      request.sampling_params = some_sampling_params(random);
      request.max_tokens = 1 + static_cast<int64_t>(random()) % (b.length / 3 + 2);
      scheduler.add(std::make_shared<Sequence>(std::move(request)));
    }
    SchedulerOutput plan = scheduler.next();
    if (plan.empty()) continue;
    StepOutput outcome = executor.execute(plan);
    visit(plan, outcome);
    scheduler.done(plan, std::move(outcome));
  }
}

}  // namespace trireme::test
