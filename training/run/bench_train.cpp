#include "training/run/bench_train.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "engine/core/cpu.h"
#include "engine/device/timing.h"
#include "parallel/comm/world.h"
#include "training/step/train_step.h"
#include "transformer/model/flops.h"

namespace trireme {
namespace {

constexpr int64_t kWarmUpSteps = 2;  // they touch memory first and create the library's primitives

RunConfig config_of(const BenchTrainOptions& options, int64_t micro_batches) {
  RunConfig config;
  config.model = options.model;
  config.dtype = options.dtype;
  config.recompute = options.recompute;
  config.deterministic = options.deterministic;
  config.cuda_graphs = !options.launch_times;  // a replayed graph is one launch
  config.float8 = options.float8;
  config.micro_batch_size = options.batch;
  config.train_batch_size = options.batch * micro_batches;
  config.gradient_accumulation_steps = micro_batches;
  config.sequence_length = options.sequence_length;
  config.train_steps = 1'000'000;
  config.optimizer.lr = 1e-4;
  config.optimizer.weight_decay = 0.0;
  config.optimizer.state_dtype = options.state_dtype;
  config.scheduler.style = DecayStyle::kConstant;
  return config;
}

void fill_random(MicroBatch& batch, int64_t vocab, uint64_t number) {
  const RandomKey key{number, stream_id("bench tokens")};
  const auto draw = [&](uint64_t i) {
    return static_cast<int32_t>(philox_word(key, i) % static_cast<uint64_t>(vocab));
  };
  for (size_t t = 0; t < batch.tokens.size(); ++t) {
    batch.tokens[t] = draw(t);
    batch.targets[t] = draw(t + batch.tokens.size());
    batch.global_index[t] = static_cast<int64_t>(t);
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
  std::vector<double> seconds;  // time of each step, ascending; GPU: one element, their mean
  Profile profile;              // of all timed steps together
  bool on_gpu = false;
  int64_t allocations = 0, launches = 0;
  double loss = 0;
  double of_step() const { return seconds[seconds.size() / 2]; }  // median; GPU: mean
};

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Times steps of different numbers of micro-batches, which share one state and one context.
class StepBench {
 public:
  StepBench(const BenchTrainOptions& options, const Groups& groups, Ctx& ctx)
      : options_(options),
        groups_(groups),
        ctx_(ctx),
        state_(config_of(options, 1), groups.layout) {}

  // Call once before run(): allocates the memory of the largest step.
  void prepare(const std::vector<int64_t>& micro_batches) {
    for (const int64_t n : micro_batches) {
      const RunConfig config = config_of(options_, n);
      TrainStep step(config, state_, groups_, ctx_);
      plans_.emplace_back(n, step.plan());
      capacity_ = std::max(capacity_, plans_.back().second.capacity);
    }
    allocate_memory(state_, ctx_, capacity_);
    state_.initialize(ctx_);
  }

  // Times steps. A step ends when its loss has reached the host, so that the host's clock covers
  // all GPU work. As in a run, the host has then queued the next step, and may see two steps of a
  // GPU end together. Only the mean over the steps is therefore the time of one step.
  Timing run(int64_t micro_batches, int64_t warm_up, int64_t steps) {
    const RunConfig config = config_of(options_, micro_batches);
    TrainStep step(config, state_, groups_, ctx_);
    const auto plan = std::ranges::find(plans_, micro_batches, &Planned::first);
    std::vector<MicroBatch> batches(static_cast<size_t>(micro_batches), make_batch(config));
    Timing timing;
    timing.on_gpu = ctx_.gpu != nullptr;
    ctx_.profile = &timing.profile;
    auto counted_until = std::chrono::steady_clock::now();
    const auto finish = [&](int64_t open, bool counts) {
      while (step.open() > open) {
        timing.loss = step.finish().loss;
        const auto now = std::chrono::steady_clock::now();
        const std::chrono::duration<double> took = now - std::exchange(counted_until, now);
        if (counts) timing.seconds.push_back(took.count());
      }
    };
    for (int64_t s = 0; s < warm_up + steps; ++s) {
      for (MicroBatch& batch : batches) fill_random(batch, options_.model.vocab_size, drawn_++);
      if (s == warm_up) {
        finish(0, false);
        timing.profile.clear();
        timing.allocations = allocation_count();
        timing.launches = launches();
      }
      if (step.open() == 0) counted_until = std::chrono::steady_clock::now();
      step.start(taken_++, batches, plan->second);
      finish(step.max_open() - 1, s >= warm_up);
    }
    finish(0, true);
    if (timing.on_gpu && steps > 0) timing.seconds = {mean(timing.seconds)};
    ctx_.profile = nullptr;
    timing.allocations = allocation_count() - timing.allocations;
    timing.launches = (launches() - timing.launches) / std::max<int64_t>(1, steps);
    std::ranges::sort(timing.seconds);
    return timing;
  }

  // Launch times of one step of one micro-batch, after one warm-up step.
  std::vector<cuda::LaunchTime> launch_times() {
    run(1, 1, 0);
    cuda::start_launch_times(*ctx_.gpu);
    run(1, 0, 1);
    return cuda::take_launch_times(*ctx_.gpu);
  }

  int64_t parameters() const { return state_.store.parameter_count(); }
  int64_t bytes() const { return state_.bytes() + capacity_; }

 private:
  using Planned = std::pair<int64_t, ArenaPlan>;
  int64_t launches() const { return ctx_.gpu != nullptr ? ctx_.gpu->launches : 0; }

  const BenchTrainOptions& options_;
  const Groups& groups_;
  Ctx& ctx_;
  TrainState state_;
  std::vector<Planned> plans_;  // by number of micro-batches
  int64_t capacity_ = 0;
  int64_t taken_ = 0;   // steps run so far
  uint64_t drawn_ = 0;  // random batches filled so far
};

// Fractions of a CPU step's time by category.
void add_shares(const Timing& timing, BenchTrainReport& report) {
  double total = 0, known = 0;
  for (const double s : timing.seconds) total += s;
  for (size_t c = 0; c + 1 < kTimeCategories; ++c) {
    const auto category = static_cast<TimeCategory>(c);
    const double share = timing.profile.seconds(category) / total;
    known += share;
    if (share > 0) report.shares.emplace_back(time_category_name(category), share);
  }
  report.shares.emplace_back("rest", std::max(0.0, 1.0 - known));
}

void add_rates(const BenchTrainOptions& options, BenchTrainReport& report) {
  const int64_t tokens = options.batch * options.sequence_length * report.step_micro_batches;
  report.tokens_per_second = static_cast<double>(tokens) / report.step_ms * 1e3;
  const ModelConfig& m = options.model;
  report.gflops = training_flops_per_token(m, report.parameters, options.sequence_length) *
                  report.tokens_per_second / 1e9;
  const int64_t attention = m.num_layers * m.num_heads * m.head_dim * options.sequence_length;
  report.gflops_full_attention =
      (6.0 * static_cast<double>(report.parameters) + 12.0 * static_cast<double>(attention)) *
      report.tokens_per_second / 1e9;
}

void measure(const BenchTrainOptions& options, StepBench& bench, BenchTrainReport& report) {
  const int64_t n = options.micro_batches;
  const int64_t whole = ceil_div(options.step_tokens, options.batch * options.sequence_length);
  std::vector<int64_t> sizes = {1};
  if (n > 1) sizes.push_back(n);
  if (options.whole_step && std::ranges::find(sizes, whole) == sizes.end()) sizes.push_back(whole);
  bench.prepare(sizes);
  const Timing one = bench.run(1, kWarmUpSteps, options.steps);
  report.step_ms = one.of_step() * 1e3;
  if (one.on_gpu) {
    report.mean_ms = report.step_ms;
  } else {
    report.median_ms = report.step_ms;
    report.least_ms = one.seconds.front() * 1e3;
  }
  report.allocations_in_steps = one.allocations;
  report.launches = one.launches;
  report.loss = one.loss;
  add_shares(one, report);
  if (n > 1) {
    const Timing several = bench.run(n, kWarmUpSteps, options.steps);
    report.micro_ms = (several.of_step() - one.of_step()) / static_cast<double>(n - 1) * 1e3;
    if (report.micro_ms <= 0) report.micro_ms = several.of_step() / static_cast<double>(n) * 1e3;
    report.update_ms = std::max(0.0, report.step_ms - report.micro_ms);
    report.step_micro_batches = whole;
    report.step_ms = static_cast<double>(whole) * report.micro_ms + report.update_ms;
    report.allocations_in_steps += several.allocations;
    report.launches = (several.launches - one.launches) / (n - 1);
    report.loss = several.loss;
  }
  if (options.launch_times) report.launch_times = bench.launch_times();
  if (options.whole_step) report.whole_step_ms = bench.run(whole, kWarmUpSteps, 1).of_step() * 1e3;
}

}  // namespace

BenchTrainReport bench_train(const BenchTrainOptions& options, World& world, cuda::Context* gpu) {
  TRIREME_CHECK(world.size() == 1, "bench_train() on ", world.size(), " ranks, expected 1");
  const int threads = options.threads > 0 ? options.threads : available_cores();
  pin_team(0, threads);
  BenchTrainReport report;
  Ctx ctx(threads, "activations", gpu);
  if (gpu != nullptr) {
    gpu->deterministic = options.deterministic;
    gpu->autotune = options.autotune;
  }
  if (gpu != nullptr)
    report.device_peak = measure_device_peak(ctx, options.dtype, options.peak_side);
  else
    report.peak = measure_peak(threads);
  report.peak.threads = threads;
  const int64_t resident = resident_anonymous_bytes();
  const RunConfig config = config_of(options, 1);
  const Groups groups(world.world(), config.parallel);
  StepBench bench(options, groups, ctx);
  measure(options, bench, report);
  if (gpu != nullptr) report.shares.clear();  // host times do not describe GPU work
  report.parameters = bench.parameters();
  report.bytes = bench.bytes();
  report.resident_bytes = resident_anonymous_bytes() - resident;
  if (gpu == nullptr) raise_peak(report.peak, measure_peak(threads, false));
  if (gpu != nullptr) {
    report.device_bytes = cuda::device_memory(*gpu).used;
    report.deterministic = gpu->deterministic;
  }
  add_rates(options, report);
  return report;
}

}  // namespace trireme
