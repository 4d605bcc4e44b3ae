#include "training/pretrain.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "engine/core/cpu.h"
#include "engine/observe/log.h"
#include "engine/ops/peak.h"
#include "parallel/launch.h"
#include "training/evaluate.h"
#include "training/run_directory.h"
#include "training/run_records.h"
#include "training/signals.h"
#include "training/train_checkpoint.h"
#include "training/train_step.h"
#include "transformer/flops.h"

namespace trireme {
namespace {

// The run of one rank, in the order in which a run happens.
class PretrainRun {
 public:
  PretrainRun(const RunConfig& config, World& world, const PretrainOptions& options);
  ExitCode run();

 private:
  void open_data();
  void make_plans();
  std::string memory_report() const;
  void start_or_resume();
  StepResult train_one_step();
  void evaluate(StepMetrics* metrics);
  void save();
  StopRequest agreed_request(SignalRequests& signals);
  void check_divergence(const StepResult& result) const;
  StepMetrics describe_step(const StepResult& result, double seconds) const;

  const RunConfig& config_;
  World& world_;
  Communicator& group_;  // all ranks
  Groups groups_;
  PretrainOptions options_;
  Ctx ctx_;
  Profile profile_;
  TrainState state_;
  TrainStep step_;
  Evaluator evaluator_;
  std::unique_ptr<BatchSource> train_data_, validation_data_;
  std::string no_validation_;  // why there is no validation_data_
  std::vector<MicroBatch> batches_;
  ArenaPlan train_plan_, eval_plan_;
  TrainPosition position_;
  int64_t last_saved_ = -1;
  double peak_tflops_ = 0;  // of this rank
  int64_t parameters_ = 0;  // of the whole model
  std::unique_ptr<RunRecords> records_;
};

PretrainRun::PretrainRun(const RunConfig& config, World& world, const PretrainOptions& options)
    : config_(config),
      world_(world),
      group_(world.world()),
      groups_(group_, config.parallel, kv_head_copies(config.model, config.parallel.tp)),
      options_(options),
      ctx_(pin_rank(world, config.threads_per_rank), "activations"),
      state_(config, groups_.layout),
      step_(config, state_, groups_, ctx_),
      evaluator_(state_.model, state_.store, groups_, ctx_, config.micro_batch_size,
                 config.sequence_length),
      batches_(static_cast<size_t>(config.gradient_accumulation_steps)) {
  parameters_ = parameter_count(config.model);
  ctx_.seed = config.seed;
  ctx_.profile = &profile_;
}

void PretrainRun::open_data() {
  const BatchSourceOptions source{.sequence_length = config_.sequence_length,
                                  .vocab_size = config_.model.vocab_size,
                                  .seed = config_.seed};
  train_data_ = make_train_source(config_.data, source,
                                  checked_mul(config_.train_steps, config_.train_batch_size));
  validation_data_ = make_validation_source(config_.data, source);
  if (validation_data_) return;
  no_validation_ = why_no_validation(config_.data);
  if (config_.eval_interval > 0)
    fail_input("evaluation.eval_interval ", config_.eval_interval, " asks for validation, but ",
               no_validation_, "; or set evaluation.eval_interval to 0");
  if (!config_.data.valid.empty()) fail_input(no_validation_);
}

void PretrainRun::make_plans() {
  train_plan_ = step_.plan();
  if (validation_data_) eval_plan_ = evaluator_.plan();
}

std::string PretrainRun::memory_report() const {
  const ParameterStore& store = state_.store;
  const int64_t activations = std::max(train_plan_.capacity, eval_plan_.capacity);
  const auto line = [](const char* what, int64_t bytes) {
    return concat("  ", what, " ", format_bytes(bytes), " (", bytes, " bytes)\n");
  };
  return concat("bytes on each rank, from a counting run of one step:\n",
                line("parameters              ", store.value_bytes()),
                line("gradients               ", store.gradient_bytes()),
                line("optimizer state         ", state_.optimizer.state_bytes()),
                state_.optimizer.file_bytes() == 0
                    ? std::string()
                    : line("optimizer state, in file", state_.optimizer.file_bytes()),
                line("activations and scratch ", activations),
                line("total                   ", state_.bytes() + activations));
}

void PretrainRun::start_or_resume() {
  // Rank 0 looks, all agree: nobody starts a run that another rank refuses.
  std::string outcome;
  if (group_.rank() == 0) {
    try {
      const ResumePlan plan = plan_resume(config_, options_.resume);
      for (const std::string& note : plan.notes) log_warning(note);
      outcome = "+" + plan.checkpoint;
    } catch (const InputError& e) {
      outcome = concat("-", e.what());
    }
  }
  outcome = group_.broadcast_string(outcome, 0);
  if (outcome.front() == '-') throw InputError(outcome.substr(1));
  const std::string checkpoint = outcome.substr(1);

  state_.allocate();
  ctx_.arena.reserve(std::max(train_plan_.capacity, eval_plan_.capacity));
  if (checkpoint.empty()) {
    state_.initialize(ctx_);
  } else {
    position_ = load_train_checkpoint(CheckpointReader(checkpoint), state_);
    last_saved_ = position_.step;
  }
  if (group_.rank() == 0) {
    sweep_leftovers(config_.checkpoint.save);
    write_run_directory(config_);
    records_ = std::make_unique<RunRecords>(config_, position_.step);
  }
  group_.barrier();
  for (const std::string& note : config_.notes) log_info(note);
  if (group_.rank() == 0 && !no_validation_.empty())
    log_warning("no validation loss will be taken: ", no_validation_);
  if (!checkpoint.empty())
    log_info("continuing ", checkpoint, " at step ", position_.step, " of ", config_.train_steps);
}

StepResult PretrainRun::train_one_step() {
  {
    const TimeScope timed(&profile_, TimeCategory::kData);
    const Place& dp = groups_.layout.dp;
    const int64_t group_samples = config_.micro_batch_size * dp.size;
    for (size_t i = 0; i < batches_.size(); ++i) {
      const int64_t consumed = position_.consumed_samples + static_cast<int64_t>(i) * group_samples;
      train_data_->fill(first_sample(consumed, config_.micro_batch_size, dp.index),
                        config_.micro_batch_size, batches_[i]);
    }
  }
  StepResult result = step_.run(position_.step, batches_, train_plan_);
  ++position_.step;
  position_.consumed_samples += config_.train_batch_size;
  return result;
}

void PretrainRun::check_divergence(const StepResult& result) const {
  if (!result.skipped) return;
  log_warning("step ", position_.step, " skipped: ", result.first_bad, " is not finite (loss ",
              result.loss, ", gradient norm ", result.grad_norm, ", loss scale ", result.loss_scale,
              "); ", result.consecutive_skips, " in a row");
  if (result.consecutive_skips < config_.max_consecutive_skips) return;
  throw Error(concat("stopped at step ", position_.step, ": ", result.consecutive_skips,
                     " steps in a row were not finite, the last by ", result.first_bad,
                     "; lower optimizer.params.lr, raise the warm-up, or use bf16 or fp32; the "
                     "last checkpoint is whole"),
              ExitCode::kDiverged);
}

void PretrainRun::evaluate(StepMetrics* metrics) {
  if (!validation_data_) return;
  const int64_t samples = config_.eval_steps * config_.train_batch_size;
  const EvalResult result = evaluator_.run(*validation_data_, samples, eval_plan_);
  metrics->validation_loss = result.loss;
}

void PretrainRun::save() {
  if (last_saved_ == position_.step) return;
  const SavedCheckpoint saved = save_train_checkpoint(config_, state_, position_, groups_);
  last_saved_ = position_.step;
  log_info("saved ", saved.directory, " (", format_bytes(saved.bytes), ")");
}

StopRequest PretrainRun::agreed_request(SignalRequests& signals) {
  const auto mine = static_cast<int64_t>(signals.take());
  if (group_.size() == 1) return static_cast<StopRequest>(mine);
  return static_cast<StopRequest>(group_.all_reduce_scalar(mine, ReduceOp::kMax));
}

StepMetrics PretrainRun::describe_step(const StepResult& result, double seconds) const {
  StepMetrics m;
  m.step = position_.step;
  m.train_steps = config_.train_steps;
  m.consumed_samples = position_.consumed_samples;
  m.global_batch_size = config_.train_batch_size;
  m.tokens = config_.train_batch_size * config_.sequence_length;
  m.consumed_tokens = position_.consumed_samples * config_.sequence_length;
  m.loss = result.loss;
  m.grad_norm = result.grad_norm;
  m.lr = result.learning_rate;
  m.loss_scale = result.loss_scale;
  m.step_ms = seconds * 1e3;
  m.tokens_per_second = static_cast<double>(m.tokens) / seconds;
  m.flops_formula = kFlopsFormula;
  m.model_tflops = training_flops_per_token(config_.model, parameters_, config_.sequence_length) *
                   m.tokens_per_second / group_.size() / 1e12;
  // Above 1 the peak was measured while something else held the machine: no number beats a wrong one.
  if (m.model_tflops <= peak_tflops_) m.mfu = m.model_tflops / peak_tflops_;
  m.arena_bytes = ctx_.arena.capacity();
  m.allocation_count = allocation_count();
  m.skipped = result.skipped;
  m.skipped_iterations = m.nan_iterations = result.total_skips;
  double known = 0;
  for (size_t c = 0; c + 1 < kTimeCategories; ++c) {
    const auto category = static_cast<TimeCategory>(c);
    const double ms = profile_.seconds(category) * 1e3;
    known += ms;
    m.extra.emplace_back(concat(time_category_name(category), "_ms"), ms);
  }
  m.extra.emplace_back("other_ms", std::max(0.0, m.step_ms - known));
  return m;
}

ExitCode PretrainRun::run() {
  open_data();
  make_plans();
  if (options_.validate_only) {
    if (group_.rank() == 0) {
      plan_resume(config_, options_.resume);
      if (!no_validation_.empty()) log_warning("no validation loss: ", no_validation_);
      std::printf("configuration is valid for %d rank%s\n%s%s", group_.size(),
                  group_.size() == 1 ? "" : "s", memory_report().c_str(),
                  train_plan_.table(8).c_str());
    }
    return ExitCode::kDone;
  }
  start_or_resume();
  log_info("device cpu (", isa_name(active_isa()), " kernels, ", ctx_.threads,
           " threads a rank): this build has no other; ", world_.describe());
  log_info(parameters_, " parameters, ", dtype_name(config_.dtype), "; ", train_data_->describe());
  log_info(memory_report());
  const MachinePeak peak = measure_peak(ctx_.threads, false);  // a run takes no more than its plan
  const bool half = config_.dtype == DType::kBF16;
  peak_tflops_ = (half ? peak.bfloat16_gflops : peak.float32_gflops) / 1e3;

  SignalRequests signals(world_.size() == 1 || detect_launcher().name == "srun");
  while (position_.step < config_.train_steps) {
    profile_.clear();
    const auto begin = std::chrono::steady_clock::now();
    const StepResult result = train_one_step();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    StepMetrics metrics = describe_step(result, took.count());
    const bool last = position_.step == config_.train_steps;
    if (last || (config_.eval_interval > 0 && position_.step % config_.eval_interval == 0))
      evaluate(&metrics);
    if (records_) records_->write(metrics);
    check_divergence(result);
    const StopRequest request = agreed_request(signals);
    const int64_t interval = config_.checkpoint.save_interval;
    if (last || request != StopRequest::kNone || (interval > 0 && position_.step % interval == 0))
      save();
    if (request == StopRequest::kSaveAndStop && !last) {
      log_info("stopped by request at step ", position_.step, "; continue with --resume auto");
      return ExitCode::kStoppedSaved;
    }
  }
  return ExitCode::kDone;
}

}  // namespace

ExitCode pretrain(const RunConfig& config, World& world, const PretrainOptions& options) {
  return PretrainRun(config, world, options).run();
}

}  // namespace trireme
