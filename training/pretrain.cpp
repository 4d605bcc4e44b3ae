#include "training/pretrain.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <iterator>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "engine/device/timing.h"
#include "engine/io/atomic_file.h"
#include "engine/observe/log.h"
#include "engine/ops/peak.h"
#include "parallel/agree.h"
#include "parallel/device.h"
#include "parallel/launch.h"
#include "training/checkpoint_model.h"
#include "training/evaluate.h"
#include "training/finetune_data.h"
#include "training/finetune_origin.h"
#include "training/run_directory.h"
#include "training/run_records.h"
#include "training/traffic_metrics.h"
#include "training/train_checkpoint.h"
#include "training/train_step.h"
#include "transformer/flops.h"
#include "transformer/peft_adapter.h"

namespace trireme {
namespace {

// The run of one rank, in the order in which a run happens.
class PretrainRun {
 public:
  PretrainRun(const RunConfig& config, World& world, const PretrainOptions& options,
              SignalRequests& signals);
  ExitCode run();

 private:
  // A step that was started and whose result has not been read: what its record needs.
  struct OpenStep {
    TrainPosition position;  // after the step
    Profile profile;
    int64_t allocations = 0;
    StepMetrics sent;  // only TrafficMetrics
  };
  void open_examples();
  void take_references();
  std::vector<double> log_likelihoods(const ExampleSet& set);
  double preference_loss();
  void open_data();
  void make_plans();
  int64_t planned_bytes() const;
  std::string memory_report() const;
  void check_device_memory() const;
  ResumePlan plan_start();  // on rank 0
  void start_or_resume();
  void start_step();
  void finish_steps(int64_t open);
  bool due(int64_t interval, int64_t step) const { return interval > 0 && step % interval == 0; }
  double loss_on(BatchSource& data);
  void validate(StepMetrics& metrics);
  void save();
  void write_adapter(const std::string& checkpoint) const;
  StopRequest agreed_request();
  double peak_of_rank() const;
  void finish_step();
  void check_divergence(int64_t step, const StepResult& result) const;
  StepMetrics describe_step(const OpenStep& open, const StepResult& result, double seconds) const;

  const RunConfig& config_;
  World& world_;
  Communicator& group_;  // all ranks
  RankDevice device_;
  Groups groups_;
  PretrainOptions options_;
  SignalRequests& signals_;
  Ctx ctx_;
  Profile profile_;
  TrainState state_;
  TrainStep step_;
  Evaluator evaluator_;
  std::unique_ptr<BatchSource> train_data_, test_data_;
  std::vector<ValidationSource> validation_data_;
  std::string no_validation_;  // why there is no validation_data_
  std::shared_ptr<const FinetuneData> examples_;
  FinetuneOrigin origin_;                      // on rank 0
  ExampleSource* train_examples_ = nullptr;    // of preferences
  ExampleSource* validation_pairs_ = nullptr;  // likewise
  std::string examples_summary_;               // of a fine-tuning run
  int64_t sequences_per_epoch_ = 0;            // of it
  std::vector<MicroBatch> batches_;
  ArenaPlan train_plan_, eval_plan_;
  TrainPosition position_;  // with the open steps
  // Started, and not finished; oldest first.
  std::deque<OpenStep> open_steps_;
  std::chrono::steady_clock::time_point
      counted_until_;  // the time before belongs to finished steps
  int64_t last_saved_ = -1;
  double peak_tflops_ = 0;          // of this rank
  int64_t parameters_ = 0;          // of the whole model
  int64_t adapter_parameters_ = 0;  // beside them
  TrafficMetrics traffic_metrics_;
  std::unique_ptr<RunRecords> records_;
};

// Of the GPU what its maker states, of the CPU what is measured now.
double PretrainRun::peak_of_rank() const {
  if (device_.gpu != nullptr) return cuda::nominal_tflops(device_.gpu->info, config_.dtype);
  const MachinePeak peak = measure_peak(ctx_.threads, false);  // a run takes no more than its plan
  const bool half = config_.dtype == DType::kBF16;
  return (half ? peak.bfloat16_gflops : peak.float32_gflops) / 1e3;
}

PretrainRun::PretrainRun(const RunConfig& config, World& world, const PretrainOptions& options,
                         SignalRequests& signals)
    : config_(config),
      world_(world),
      group_(world.world()),
      device_(open_rank_device(world, config.device, config.comm.device_backend)),
      groups_(group_, config.parallel, kv_head_copies(config.model, config.parallel.tp)),
      options_(options),
      signals_(signals),
      ctx_(pin_rank(world, config.threads_per_rank), "activations", device_.get()),
      state_(config, groups_.layout),
      step_(config, state_, groups_, ctx_),
      evaluator_(state_.model, state_.store, groups_, ctx_, config.micro_batch_size,
                 config.sequence_length),
      batches_(static_cast<size_t>(config.gradient_accumulation_steps)) {
  parameters_ = parameter_count(config.model);
  if (config.finetune.lora.enabled())
    for (const ModelParameter& p : adapter_parameters(config.model, config.finetune.lora))
      adapter_parameters_ += Shape(std::span<const int64_t>(p.shape)).numel();
  ctx_.seed = config.seed;
  ctx_.profile = &profile_;
  if (device_.gpu == nullptr) return;
  if (config.zero.offload_optimizer.device != OffloadDevice::kNone)
    fail_input(
        "zero_optimization.offload_optimizer.device: with device cuda the optimizer's state stays "
        "on the "
        "GPU in this version; set it to none (ZeRO stages divide the state over ranks), or device "
        "to cpu");
  device_.gpu->deterministic = config.deterministic;
  device_.gpu->autotune = config.cuda_autotune;
  if (!config.cuda_cudnn_attention) {
    device_.gpu->attention.reset();
    device_.gpu->no_attention = "cuda.cudnn_attention is false";
  }
  device_.gpu->synchronous = config.cuda_synchronous;
}

// Where the batches of a fine-tuning run come from: the one difference to pretraining.
void PretrainRun::open_examples() {
  std::shared_ptr<FinetuneData> data = options_.finetune;
  if (data == nullptr) data = open_finetune_data(config_, ctx_.threads);
  const double epochs = config_.finetune.num_train_epochs;
  const int64_t sequences = data->train->samples_per_epoch();
  if (epochs > 0 && config_.train_steps != finetune_steps(config_, sequences))
    fail_input("train_steps ", config_.train_steps, " and finetune.num_train_epochs ", epochs,
               " do not agree: ", sequences, " sequences come to ",
               finetune_steps(config_, sequences), " steps; set train_steps to auto, or ",
               "num_train_epochs to null");
  examples_summary_ = data->summary;
  examples_ = data;
  if (learns_from_pairs(config_.finetune)) train_examples_ = data->train.get();
  sequences_per_epoch_ = sequences;
  train_data_ = std::move(data->train);
  if (learns_from_pairs(config_.finetune)) validation_pairs_ = data->validation.get();
  if (data->validation != nullptr)
    validation_data_.push_back({"", std::move(data->validation)});
  else
    no_validation_ = "neither finetune.valid_file nor finetune.val_size is given; give one";
  if (validation_data_.empty() && config_.eval_interval > 0)
    fail_input("evaluation.eval_interval ", config_.eval_interval, " asks for validation, but ",
               no_validation_, "; or set evaluation.eval_interval to 0");
}

void PretrainRun::open_data() {
  if (config_.finetune.enabled) return open_examples();
  const BatchSourceOptions source{.sequence_length = config_.sequence_length,
                                  .vocab_size = config_.model.vocab_size,
                                  .seed = config_.seed,
                                  .whole_sequences = true};
  train_data_ = make_train_source(config_.data, source,
                                  checked_mul(config_.train_steps, config_.train_batch_size));
  validation_data_ = make_validation_sources(config_.data, source);
  test_data_ = make_test_source(config_.data, source);
  if (!test_data_ && !config_.data.test.empty())
    fail_input("data.test_data_path holds no two tokens of one file: nothing to test on");
  if (!validation_data_.empty()) return;
  no_validation_ = why_no_validation(config_.data);
  if (config_.eval_interval > 0)
    fail_input("evaluation.eval_interval ", config_.eval_interval, " asks for validation, but ",
               no_validation_, "; or set evaluation.eval_interval to 0");
  if (!config_.data.valid.empty()) fail_input(no_validation_);
}

void PretrainRun::make_plans() {
  train_plan_ = step_.plan();
  if (!validation_data_.empty() || test_data_ || train_examples_ != nullptr)
    eval_plan_ = evaluator_.plan();
}

// What this rank takes beside its optimizer's file.
int64_t PretrainRun::planned_bytes() const {
  const int64_t tokens = config_.micro_batch_size * config_.sequence_length / config_.parallel.cp;
  const int64_t batches = device_.gpu == nullptr
                              ? 0  // used where they lie
                              : PlacedBatches::bytes(tokens, config_.gradient_accumulation_steps);
  return state_.bytes() + std::max(train_plan_.capacity, eval_plan_.capacity) +
         state_.model.position_bytes(config_.sequence_length) + batches;
}

std::string PretrainRun::memory_report() const {
  const ParameterStore& store = state_.store;
  const int64_t activations = std::max(train_plan_.capacity, eval_plan_.capacity);
  const int64_t positions = state_.model.position_bytes(config_.sequence_length);
  const int64_t batches = planned_bytes() - state_.bytes() - activations - positions;
  const auto line = [](const char* what, int64_t bytes) {
    return concat("  ", what, " ", format_bytes(bytes), " (", bytes, " bytes)\n");
  };
  std::string report = concat(
      "bytes on each rank, from a counting run of one step:\n",
      line("parameters              ", store.value_bytes()),
      store.packed_bytes() == 0 ? std::string()
                                : line("  of these in 4 bits    ", store.packed_bytes()),
      line("gradients               ", store.gradient_bytes()),
      line("optimizer state         ", state_.optimizer.state_bytes()),
      state_.optimizer.file_bytes() == 0
          ? std::string()
          : line("optimizer state, in file", state_.optimizer.file_bytes()),
      line("activations and scratch ", activations), line("rotary table            ", positions),
      batches == 0 ? std::string() : line("micro-batches           ", batches),
      line("total                   ", planned_bytes()));
  if (device_.gpu == nullptr) return report;
  const cuda::DeviceMemory memory = cuda::device_memory(*device_.gpu);
  report += concat("memory of GPU ", device_.gpu->device, ":\n",
                   line("in use now              ", memory.used),
                   line("all                     ", memory.total));
  return report;
}

// Before anything is taken. In use then: the runtime's and libraries' memory, buffers of communicators, and
// whatever else uses the GPU.
void PretrainRun::check_device_memory() const {
  if (device_.gpu == nullptr) return;
  const cuda::DeviceMemory memory = cuda::device_memory(*device_.gpu);
  if (planned_bytes() <= memory.free()) return;
  fail_input("the run needs ", format_bytes(planned_bytes()), " on each rank, and GPU ",
             device_.gpu->device, " has ", format_bytes(memory.free()), " free of ",
             format_bytes(memory.total),
             "; lower train_micro_batch_size_per_gpu or sequence_length, set "
             "activation_checkpointing.granularity to selective or full, or divide the model over "
             "more ranks (zero_optimization.stage, tensor or pipeline parallelism)\n",
             memory_report());
}

ResumePlan PretrainRun::plan_start() {
  ResumePlan plan = plan_resume(config_, options_.resume);
  origin_ = finetune_origin(config_, plan, examples_.get());
  if (examples_ != nullptr && !plan.checkpoint.empty())
    check_same_examples(plan.checkpoint, origin_of(CheckpointReader(plan.checkpoint)), origin_);
  return plan;
}

void PretrainRun::start_or_resume() {
  std::vector<std::string> resume_notes;  // of rank 0, said when there is a log
  std::string weights, adapter;           // of rank 0, as the notes are
  const std::string checkpoint = from_rank_0(group_, [&] {
    ResumePlan plan = plan_start();
    resume_notes = std::move(plan.notes);
    weights = std::move(plan.weights);
    adapter = std::move(plan.adapter);
    return plan.checkpoint;
  });
  weights = from_rank_0(group_, [&] { return weights; });
  adapter = from_rank_0(group_, [&] { return adapter; });

  take_memory(state_, ctx_, std::max(train_plan_.capacity, eval_plan_.capacity));
  if (!weights.empty()) {
    const bool begins = checkpoint.empty() || learns_from_pairs(config_.finetune);
    agreed(group_, [&] { load_initial_weights(ctx_, weights, adapter, begins, state_); });
  } else if (checkpoint.empty()) {
    state_.initialize(ctx_);
  }
  if (train_examples_ != nullptr) take_references();
  if (!checkpoint.empty()) {
    agreed(group_,
           [&] { position_ = load_train_checkpoint(ctx_, CheckpointReader(checkpoint), state_); });
    last_saved_ = position_.step;
  }
  agreed(group_, [&] {
    if (group_.rank() != 0) return;
    sweep_leftovers(config_.checkpoint.save);
    write_run_directory(config_);
    records_ = std::make_unique<RunRecords>(config_, position_.step);
  });
  for (const std::string& note : resume_notes) log_warning(note);
  for (const std::string& note : config_.notes) log_info(note);
  if (group_.rank() == 0 && !no_validation_.empty())
    log_warning("no validation loss will be taken: ", no_validation_);
  if (!weights.empty() && checkpoint.empty())
    log_info("starting at step 0 with the weights of ", weights,
             adapter.empty() ? "" : concat(" and the adapters of ", adapter),
             "; optimizer, learning rate and data begin anew");
  if (!checkpoint.empty())
    log_info("continuing ", checkpoint, " at step ", position_.step, " of ", config_.train_steps);
}

// What the model that training starts from says of every answer: the reference of preferences.
void PretrainRun::take_references() {
  const auto of = [&](const ExampleSet& set) {
    log_info("reference model: ", set.documents(), " answers");
    return std::make_shared<const std::vector<double>>(log_likelihoods(set));
  };
  const auto train = of(train_examples_->set());
  train_examples_->set_references(train);
  if (validation_pairs_ == nullptr) return;
  const bool same = &validation_pairs_->set() == &train_examples_->set();
  validation_pairs_->set_references(same ? train : of(validation_pairs_->set()));
}

std::vector<double> PretrainRun::log_likelihoods(const ExampleSet& set) {
  std::vector<int64_t> all(static_cast<size_t>(set.items()));
  std::iota(all.begin(), all.end(), int64_t{0});
  const std::shared_ptr<const ExampleSet> held(examples_, &set);
  ExampleSource source(held, all, {.sequence_length = config_.sequence_length});
  return evaluator_.log_likelihoods(set, source, eval_plan_);
}

// The mean loss of the validation's pairs.
double PretrainRun::preference_loss() {
  const std::vector<double> now = log_likelihoods(validation_pairs_->set());
  PreferenceSums sums;
  for (const int64_t item : validation_pairs_->items()) {
    double d_chosen = 0, d_rejected = 0;
    const auto first = static_cast<size_t>(2 * item);
    add_pair(config_.finetune.dpo, validation_pairs_->pair(item), now[first], now[first + 1], sums,
             d_chosen, d_rejected);
  }
  return sums.loss / sums.pairs;
}

void PretrainRun::start_step() {
  profile_.clear();
  if (open_steps_.empty()) counted_until_ = std::chrono::steady_clock::now();
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
  step_.start(position_.step, batches_, train_plan_);
  ++position_.step;
  position_.consumed_samples += config_.train_batch_size;
  OpenStep& open = open_steps_.emplace_back();
  open.position = position_;
  open.profile = profile_;
  open.allocations = allocation_count();
  if (world_.size() > 1) traffic_metrics_.add(world_, open.sent);
}

// Reads results until at most `open` steps are open.
void PretrainRun::finish_steps(int64_t open) {
  while (std::ssize(open_steps_) > open) finish_step();
}

// Reads the result of the oldest open step, and after the last one evaluates if that is due.
void PretrainRun::finish_step() {
  const StepResult result = step_.finish();
  const auto now = std::chrono::steady_clock::now();
  const std::chrono::duration<double> took = now - std::exchange(counted_until_, now);
  const OpenStep open = std::move(open_steps_.front());
  open_steps_.pop_front();
  StepMetrics metrics = describe_step(open, result, took.count());
  std::ranges::copy(open.sent.extra, std::back_inserter(metrics.extra));
  const bool last = metrics.step == config_.train_steps;
  if (last || due(config_.eval_interval, metrics.step)) {
    TRIREME_CHECK(open_steps_.empty(), "an evaluation while steps are open");
    validate(metrics);
  }
  if (last && test_data_) metrics.test_loss = loss_on(*test_data_);
  if (records_) records_->write(metrics);
  check_divergence(metrics.step, result);
}

void PretrainRun::check_divergence(int64_t step, const StepResult& result) const {
  if (!result.skipped) return;
  if (group_.rank() == 0)  // every rank has the same result
    log_warning("step ", step, " skipped: ", result.first_bad, " is not finite (loss ", result.loss,
                ", gradient norm ", result.grad_norm, ", loss scale ", result.loss_scale, "); ",
                result.consecutive_skips, " in a row");
  if (result.consecutive_skips < config_.max_consecutive_skips) return;
  throw Error(concat("stopped at step ", step, ": ", result.consecutive_skips,
                     " steps in a row were not finite, the last by ", result.first_bad,
                     "; lower optimizer.params.lr, raise the warm-up, or use bf16 or fp32; the "
                     "last checkpoint is whole"),
              ExitCode::kDiverged);
}

// The loss on evaluation.eval_iters batches of `data`.
double PretrainRun::loss_on(BatchSource& data) {
  // 0: all of them, which is also what more samples than an integer counts come to.
  const int64_t batch = config_.train_batch_size;
  const bool countable = config_.eval_steps <= std::numeric_limits<int64_t>::max() / batch;
  const int64_t samples = countable ? config_.eval_steps * batch : 0;
  return evaluator_.run(data, samples, eval_plan_).loss;
}

void PretrainRun::validate(StepMetrics& metrics) {
  for (const auto& [name, source] : validation_data_) {
    const double loss = validation_pairs_ != nullptr ? preference_loss() : loss_on(*source);
    if (name.empty())
      metrics.validation_loss = loss;
    else
      metrics.validation_losses.emplace_back(name, loss);
  }
}

void PretrainRun::save() {
  if (last_saved_ == position_.step) return;
  SavedCheckpoint saved;
  agreed(group_, [&] {
    saved = save_train_checkpoint(ctx_, config_, state_, position_, groups_, &origin_);
  });
  last_saved_ = position_.step;
  // scripts/trireme.sbatch looks for this line.
  log_info("saved ", saved.directory, " (", format_bytes(saved.bytes), ")");
  if (group_.rank() == 0 && !saved.warning.empty()) log_warning(saved.warning);
  write_adapter(saved.directory);
}

// The adapters of a checkpoint for PEFT, in the run's folder.
void PretrainRun::write_adapter(const std::string& checkpoint) const {
  if (!config_.finetune.lora.enabled() || group_.rank() != 0) return;
  const std::string folder = (std::filesystem::path(config_.output_dir) / "adapter").string();
  try {
    write_peft_adapter(config_.finetune.lora, config_.model, CheckpointModel(checkpoint),
                       origin_.base, folder);
    if (!origin_.chat_template.empty())
      write_file_atomically(concat(folder, "/chat_template.jinja"), origin_.chat_template);
    log_info("wrote ", folder, " for PEFT");
  } catch (const InputError& e) {  // the checkpoint is whole
    log_warning("no adapter for PEFT: ", e.what());
  }
}

StopRequest PretrainRun::agreed_request() {
  const auto mine = static_cast<int64_t>(signals_.take());
  if (group_.size() == 1) return static_cast<StopRequest>(mine);
  return static_cast<StopRequest>(group_.all_reduce_scalar(mine, ReduceOp::kMax));
}

StepMetrics PretrainRun::describe_step(const OpenStep& open, const StepResult& result,
                                       double seconds) const {
  StepMetrics m;
  m.step = open.position.step;
  m.train_steps = config_.train_steps;
  m.consumed_samples = open.position.consumed_samples;
  m.global_batch_size = config_.train_batch_size;
  m.tokens = config_.train_batch_size * config_.sequence_length;
  m.consumed_tokens = open.position.consumed_samples * config_.sequence_length;
  m.loss = result.loss;
  m.grad_norm = result.grad_norm;
  m.lr = result.learning_rate;
  m.loss_scale = result.loss_scale;
  m.step_ms = seconds * 1e3;
  m.tokens_per_second = static_cast<double>(m.tokens) / seconds;
  m.flops_formula = adapter_parameters_ > 0 ? kAdapterFlopsFormula : kFlopsFormula;
  m.model_tflops = training_flops_per_token(config_.model, parameters_, config_.sequence_length,
                                            adapter_parameters_) *
                   m.tokens_per_second / group_.size() / 1e12;
  // Above 1 the peak was measured while something else held the machine: no number beats a wrong one.
  if (m.model_tflops <= peak_tflops_) m.mfu = m.model_tflops / peak_tflops_;
  m.arena_bytes = ctx_.arena.capacity();
  m.allocation_count = open.allocations;
  m.skipped = result.skipped;
  m.skipped_iterations = m.nan_iterations = result.total_skips;
  double known = 0;
  for (size_t c = 0; c + 1 < kTimeCategories; ++c) {
    const auto category = static_cast<TimeCategory>(c);
    // The host's times of a GPU's work are those of queueing it.
    if (device_.gpu != nullptr && category != TimeCategory::kData) continue;
    const double ms = open.profile.seconds(category) * 1e3;
    known += ms;
    m.extra.emplace_back(concat(time_category_name(category), "_ms"), ms);
  }
  if (device_.gpu == nullptr) m.extra.emplace_back("other_ms", std::max(0.0, m.step_ms - known));
  if (group_.size() > 1)
    m.extra.emplace_back("exposed_comm_ms", result.exposed_communication_seconds * 1e3);
  if (config_.parallel.pp > 1)
    m.extra.emplace_back("pipeline_idle_ms", result.pipeline_idle_seconds * 1e3);
  if (config_.finetune.enabled) {
    const PreferenceSums& pairs = result.preferences;
    m.extra.emplace_back(pairs.pairs > 0 ? "pairs" : "loss_tokens",
                         static_cast<double>(result.valid_tokens));
    if (pairs.pairs > 0) {
      m.extra.emplace_back("rewards_chosen", pairs.chosen_reward / pairs.pairs);
      m.extra.emplace_back("rewards_rejected", pairs.rejected_reward / pairs.pairs);
      m.extra.emplace_back("rewards_margins",
                           (pairs.chosen_reward - pairs.rejected_reward) / pairs.pairs);
      m.extra.emplace_back("rewards_accuracies", pairs.correct / pairs.pairs);
    }
    const double epoch = static_cast<double>(open.position.consumed_samples) /
                         static_cast<double>(sequences_per_epoch_);
    const double last = config_.finetune.num_train_epochs;
    m.extra.emplace_back("epoch", last > 0 ? std::min(epoch, last) : epoch);
  }
  if (config_.model.moe.experts == 0) return m;
  constexpr std::array<const char*, 4> kLosses{"router_balance_loss", "router_z_loss",
                                               "router_importance_loss", "router_load_loss"};
  for (size_t i = 0; i < kLosses.size(); ++i)
    m.extra.emplace_back(kLosses[i], result.router_losses[i]);
  for (const ExpertLoad& load : result.expert_loads) {
    const std::string layer = concat("expert_load_", load.layer);
    m.extra.emplace_back(layer + "_max_over_mean", load.max_over_mean);
    m.extra.emplace_back(layer + "_p50", load.p50);
    m.extra.emplace_back(layer + "_p90", load.p90);
    m.extra.emplace_back(layer + "_p99", load.p99);
  }
  return m;
}

ExitCode PretrainRun::run() {
  agreed(group_, [&] { open_data(); });
  make_plans();
  agreed(group_, [&] { check_device_memory(); });
  if (options_.validate_only) {
    from_rank_0(group_, [&] { return plan_start().checkpoint; });
    if (group_.rank() == 0) {
      if (!no_validation_.empty()) log_warning("no validation loss: ", no_validation_);
      std::printf("configuration is valid for %d rank%s\n%s%s", group_.size(),
                  group_.size() == 1 ? "" : "s", memory_report().c_str(),
                  train_plan_.table(8).c_str());
    }
    return ExitCode::kDone;
  }
  start_or_resume();
  log_info("device ", describe_device(device_, ctx_.threads), "; ", world_.describe());
  log_info(parameters_, " parameters, ", dtype_name(config_.dtype), "; ", train_data_->describe());
  if (!examples_summary_.empty()) log_info(examples_summary_);
  if (group_.rank() == 0 && examples_ != nullptr && !examples_->warning.empty())
    log_warning(examples_->warning);
  for (const auto& [name, source] : validation_data_)
    if (!name.empty()) log_info("validation set ", name, ": ", source->describe());
  if (!step_.graphs().why_not().empty())
    log_info("cuda.graphs: a micro-batch is not recorded on the GPU: ", step_.graphs().why_not());
  log_info(memory_report());
  peak_tflops_ = peak_of_rank();

  signals_.training_begins(world_);
  while (position_.step < config_.train_steps) {
    start_step();
    const bool last = position_.step == config_.train_steps;
    const bool saves = last || due(config_.checkpoint.save_interval, position_.step);
    // What reads the model reads that of a step whose result is known.
    const bool read = saves || due(config_.eval_interval, position_.step);
    finish_steps(read ? 0 : step_.most_open() - 1);
    const StopRequest request = agreed_request();
    if (saves || request != StopRequest::kNone) {
      finish_steps(0);
      save();
    }
    if (request == StopRequest::kSaveAndStop && !last) {
      log_info("stopped by request at step ", position_.step, "; continue with --resume auto");
      return ExitCode::kStoppedSaved;
    }
  }
  return ExitCode::kDone;
}

}  // namespace

ExitCode pretrain(const RunConfig& config, World& world, const PretrainOptions& options,
                  SignalRequests& signals) {
  // What the configuration asks of a rank's parameters may not be possible in its layout.
  agreed(world.world(),
         [&] { const TrainState state(config, layout_of(config.parallel, world.world().rank())); });
  return PretrainRun(config, world, options, signals).run();
}

}  // namespace trireme
