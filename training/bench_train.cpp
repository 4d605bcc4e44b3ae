#include "training/bench_train.h"

#include <algorithm>
#include <chrono>

#include "engine/core/cpu.h"
#include "parallel/comm/world.h"
#include "training/train_step.h"
#include "transformer/flops.h"

namespace trireme {
namespace {

constexpr int64_t kWarmUpSteps = 2;  // first touches, primitive creation

RunConfig config_of(const BenchTrainOptions& options) {
  RunConfig config;
  config.model = options.model;
  config.dtype = options.dtype;
  config.recompute = options.recompute;
  config.micro_batch_size = config.train_batch_size = options.batch;
  config.gradient_accumulation_steps = 1;
  config.sequence_length = options.sequence_length;
  config.train_steps = kWarmUpSteps + options.steps;
  config.optimizer.lr = 1e-4;
  config.optimizer.weight_decay = 0.0;
  config.scheduler.style = DecayStyle::kConstant;
  return config;
}

void fill_random(MicroBatch& batch, int64_t vocab, uint64_t step) {
  const RandomKey key{step, stream_id("bench tokens")};
  const auto draw = [&](uint64_t i) {
    return static_cast<int32_t>(philox_word(key, i) % static_cast<uint64_t>(vocab));
  };
  for (size_t t = 0; t < batch.tokens.size(); ++t) {
    batch.tokens[t] = draw(t);
    batch.targets[t] = draw(t + batch.tokens.size());
    batch.rows[t] = static_cast<int64_t>(t);
  }
  batch.valid_targets = std::ssize(batch.targets);
}

MicroBatch make_batch(const RunConfig& config) {
  MicroBatch batch = shape_of_micro_batch(config.micro_batch_size, config.sequence_length);
  for (size_t t = 0; t < batch.positions.size(); ++t)
    batch.positions[t] = static_cast<int32_t>(static_cast<int64_t>(t) % config.sequence_length);
  return batch;
}

struct Timing {
  std::vector<double> seconds;
  Profile profile;  // of the timed steps together
  int64_t allocations = 0;
  double loss = 0;
};

Timing time_steps(const RunConfig& config, TrainState& state, TrainStep& step, Ctx& ctx,
                  const ArenaPlan& plan) {
  Timing timing;
  std::vector<MicroBatch> batches = {make_batch(config)};
  ctx.profile = &timing.profile;
  for (int64_t s = 0; s < config.train_steps; ++s) {
    fill_random(batches[0], state.model.config().vocab_size, static_cast<uint64_t>(s));
    if (s == kWarmUpSteps) {
      timing.profile.clear();
      timing.allocations = allocation_count();
    }
    const auto begin = std::chrono::steady_clock::now();
    timing.loss = step.run(s, batches, plan).loss;
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (s >= kWarmUpSteps) timing.seconds.push_back(took.count());
  }
  timing.allocations = allocation_count() - timing.allocations;
  return timing;
}

}  // namespace

BenchTrainReport bench_train(const BenchTrainOptions& options) {
  const RunConfig config = config_of(options);
  const int threads = options.threads > 0 ? options.threads : available_cores();
  pin_team(0, threads);
  BenchTrainReport report;
  report.peak = measure_peak(threads);
  run_threads(1, [&](Communicator& group) {
    pin_team(0, threads);
    const int64_t resident = resident_anonymous_bytes();
    Ctx ctx(threads, "activations");
    const Groups groups(group, config.parallel);
    TrainState state(config, groups.layout);
    TrainStep step(config, state, groups, ctx);
    const ArenaPlan plan = start_fresh(state, step, ctx);
    const Timing timing = time_steps(config, state, step, ctx, plan);

    std::vector<double> sorted = timing.seconds;
    std::ranges::sort(sorted);
    const double median = sorted[sorted.size() / 2];
    double total = 0, known = 0;
    for (double s : sorted) total += s;
    report.parameters = state.store.parameter_count();
    report.median_ms = median * 1e3;
    report.least_ms = sorted.front() * 1e3;
    report.tokens_per_second =
        static_cast<double>(options.batch * options.sequence_length) / median;
    report.gflops =
        training_flops_per_token(options.model, report.parameters, options.sequence_length) *
        report.tokens_per_second / 1e9;
    const ModelConfig& m = options.model;
    report.gflops_full_attention =
        (6.0 * static_cast<double>(report.parameters) +
         12.0 * static_cast<double>(m.num_layers * m.num_heads * m.head_dim *
                                    options.sequence_length)) *
        report.tokens_per_second / 1e9;
    for (size_t c = 0; c + 1 < kTimeCategories; ++c) {
      const auto category = static_cast<TimeCategory>(c);
      const double share = timing.profile.seconds(category) / total;
      known += share;
      if (share > 0) report.shares.emplace_back(time_category_name(category), share);
    }
    report.shares.emplace_back("rest", std::max(0.0, 1.0 - known));
    report.bytes = state.bytes() + plan.capacity;
    report.resident_bytes = resident_anonymous_bytes() - resident;
    report.allocations_in_steps = timing.allocations;
    report.loss = timing.loss;
  });
  return report;
}

}  // namespace trireme
