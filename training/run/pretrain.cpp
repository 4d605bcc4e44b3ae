#include "training/run/pretrain.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "engine/core/file_limit.h"
#include "engine/io/atomic_file.h"
#include "engine/observe/log.h"
#include "parallel/agree.h"
#include "parallel/launch.h"
#include "training/config/outer.h"
#include "training/data/examples/finetune_data.h"
#include "training/run/gemm_algorithm_file.h"
#include "training/run/pretrain_run.h"
#include "training/run/run_lineage.h"
#include "transformer/checkpoint/checkpoint_model.h"
#include "transformer/checkpoint/find_checkpoint.h"
#include "transformer/formats/peft/peft_adapter.h"

namespace trireme {
namespace {

constexpr int64_t kOpenFiles = 1 << 16;  // two for each token file of a blend

// Advice for a run that diverged. newest: its newest good checkpoint; empty: none. A run with
// changed settings is another run, so it cannot resume that checkpoint.
std::string advice_for_divergence(const RunConfig& config, const std::string& newest) {
  const bool fp16 = config.dtype == DType::kF16;
  std::string settings =
      concat("lower optimizer.params.lr", fp16 ? ", " : " or ", "raise the warm-up",
             fp16 ? ", or use bf16 or fp32" : "", ", in another output_dir");
  if (newest.empty()) return settings;
  return concat("the newest checkpoint to continue is ", newest,
                " (or an older one, if the loss was already rising there); ", settings, ", and ",
                advice_for_weights(config, newest));
}

[[noreturn]] void fail_at_diverged_end(const RunConfig& config, const std::string& checkpoint) {
  const std::string folder = std::filesystem::path(checkpoint).parent_path().string();
  std::string newest = find_newest_good(folder, false).directory;
  if (!newest.empty() && !skipped_steps_problem(CheckpointReader(newest)).empty()) newest.clear();
  throw Error(concat(checkpoint, " is the end of a run that diverged",
                     newest.empty() ? ", and none before it can be continued; " : "; ",
                     advice_for_divergence(config, newest)),
              ExitCode::kDiverged);
}

}  // namespace

PretrainRun::PretrainRun(const RunConfig& config, World& world, const PretrainOptions& options,
                         SignalRequests& signals)
    : config_(config),
      world_(world),
      group_(world.world()),
      device_(open_rank_device(world, config.device, config.comm.device_backend)),
      sites_(group_, config.outer.sites_in_job()),
      groups_(sites_.ranks(), config.parallel, kv_head_copies(config.model, config.parallel.tp)),
      options_(options),
      signals_(signals),
      ctx_(pin_rank(world, config.threads_per_rank), "activations", device_.get()),
      state_(make_train_state(config, group_)),
      step_(config, state_, groups_, ctx_),
      evaluator_(state_.model, state_.store, groups_, ctx_, config.micro_batch_size,
                 config.sequence_length),
      batches_(static_cast<size_t>(config.gradient_accumulation_steps)) {
  if (state_.outer != nullptr)
    outer_ =
        std::make_unique<OuterSync>(groups_, open_exchange(), state_.store, *state_.outer, ctx_);
  parameters_ = parameter_count(config.model);
  if (config.finetune.lora.enabled())
    for (const ModelParameter& p : adapter_parameters(config.model, config.finetune.lora))
      adapter_parameters_ += Shape(std::span<const int64_t>(p.shape)).numel();
  ctx_.seed = config.seed;
  ctx_.profile = &profile_;
  if (device_.gpu == nullptr) return;
  if (config.zero.offload_optimizer.device != OffloadDevice::kNone)
    fail_input(
        "zero_optimization.offload_optimizer.device: offload is not supported with device cuda; "
        "set it to none (ZeRO stages shard the optimizer state over ranks), or device to cpu");
  device_.gpu->deterministic = config.deterministic;
  device_.gpu->autotune = config.cuda_autotune;
  if (!config.cuda_cudnn_attention) {
    device_.gpu->attention.reset();
    device_.gpu->no_attention = "cuda.cudnn_attention is false";
  }
  device_.gpu->synchronous = config.cuda_synchronous;
}

// Opens the data of a fine-tuning run, which otherwise runs as pretraining does.
void PretrainRun::open_examples() {
  std::shared_ptr<FinetuneData> data = options_.finetune;
  if (data == nullptr) data = open_finetune_data(config_, ctx_.threads);
  const double epochs = config_.finetune.num_train_epochs;
  const int64_t sequences = data->train->samples_per_epoch();
  if (epochs > 0 && config_.train_steps != finetune_steps(config_, sequences))
    fail_input("train_steps ", config_.train_steps, " and finetune.num_train_epochs ", epochs,
               " do not agree: ", sequences, " sequences per epoch give ",
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
    no_validation_ = "neither finetune.valid_file nor finetune.val_size is set; give one";
  if (validation_data_.empty() && config_.eval_interval > 0)
    fail_input("evaluation.eval_interval ", config_.eval_interval, " requests validation, but ",
               no_validation_, "; or set evaluation.eval_interval to 0");
}

void PretrainRun::open_data() {
  raise_file_limit(kOpenFiles);
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
    fail_input("data.test_data_path: expected a file with at least two tokens");
  if (!validation_data_.empty()) return;
  no_validation_ = why_no_validation(config_.data);
  if (config_.eval_interval > 0)
    fail_input("evaluation.eval_interval ", config_.eval_interval, " requests validation, but ",
               no_validation_, "; or set evaluation.eval_interval to 0");
  if (!config_.data.valid.empty()) fail_input(no_validation_);
}

void PretrainRun::make_plans() {
  train_plan_ = step_.plan();
  if (!validation_data_.empty() || test_data_ || train_examples_ != nullptr)
    eval_plan_ = evaluator_.plan();
  if (outer_ != nullptr) outer_plan_ = outer_->plan();
}

// Activations and scratch.
int64_t PretrainRun::arena_bytes() const {
  return std::max({train_plan_.capacity, eval_plan_.capacity, outer_plan_.capacity});
}

ResumePlan PretrainRun::plan_start() {
  data_files_ = data_identity(config_.data);
  ResumePlan plan = plan_resume(config_, options_.resume, data_files_);
  lineage_ = run_lineage(config_, plan, examples_.get());
  if (examples_ != nullptr && !plan.checkpoint.empty())
    check_same_examples(config_, plan, lineage_);
  return plan;
}

void PretrainRun::start_or_resume() {
  std::vector<std::string> resume_notes;  // on rank 0, logged once there is a log
  std::string weights, adapter;           // on rank 0
  const std::string checkpoint = from_rank_0(group_, [&] {
    lock_ = std::make_unique<RunLock>(config_);  // before the contents are read
    ResumePlan plan = plan_start();
    resume_notes = std::move(plan.notes);
    if (!lock_->warning().empty()) resume_notes.push_back(lock_->warning());
    weights = std::move(plan.weights);
    adapter = std::move(plan.adapter);
    return plan.checkpoint;
  });
  weights = from_rank_0(group_, [&] { return weights; });
  adapter = from_rank_0(group_, [&] { return adapter; });

  allocate_memory(state_, ctx_, arena_bytes());
  if (!weights.empty()) {
    const bool begins = checkpoint.empty() || learns_from_pairs(config_.finetune);
    agreed(group_, [&] { load_initial_weights(ctx_, weights, adapter, begins, state_); });
  } else if (checkpoint.empty()) {
    state_.initialize(ctx_);
  }
  if (train_examples_ != nullptr) compute_reference_log_probabilities();
  if (!checkpoint.empty()) {
    agreed(group_,
           [&] { position_ = load_train_checkpoint(ctx_, CheckpointReader(checkpoint), state_); });
    last_saved_ = position_.step;
    if (position_.consecutive_skips == 0) last_checkpoint_ = checkpoint;
  }
  if (outer_ != nullptr) begin_rounds();
  agreed(group_, [&] {
    if (group_.rank() != 0) return;
    sweep_leftovers(config_.checkpoint.save);
    write_run_directory(config_);
    records_ = std::make_unique<RunRecords>(config_, position_.step);
  });
  for (const std::string& note : resume_notes) log_warning(note);
  for (const std::string& note : config_.notes) log_info(note);
  if (group_.rank() == 0) warn_of_copies();
  if (group_.rank() == 0 && !no_validation_.empty())
    log_warning("the run has no validation loss: ", no_validation_);
  if (!weights.empty() && checkpoint.empty())
    log_info("starting at step 0 with the weights of ", weights,
             adapter.empty() ? "" : concat(" and the adapters of ", adapter),
             "; optimizer state, learning rate and data position are new");
  if (position_.consecutive_skips > 0 && position_.step >= config_.train_steps)
    fail_at_diverged_end(config_, checkpoint);
  if (position_.step > config_.train_steps)
    log_warning(checkpoint, " is at step ", position_.step, " and train_steps is ",
                config_.train_steps, ": nothing is left to train; raise train_steps");
  if (!checkpoint.empty())
    log_info("continuing ", checkpoint, " at step ", position_.step, " of ", config_.train_steps);
}

// Computes the reference log-probabilities of all responses, with the initial model.
void PretrainRun::compute_reference_log_probabilities() {
  const auto of = [&](const ExampleSet& set) {
    log_info("computing reference log-probabilities of ", set.documents(), " responses");
    return std::make_shared<const std::vector<double>>(log_likelihoods(set));
  };
  const auto train = of(train_examples_->set());
  train_examples_->set_reference_log_probabilities(train);
  if (validation_pairs_ == nullptr) return;
  const bool same = &validation_pairs_->set() == &train_examples_->set();
  validation_pairs_->set_reference_log_probabilities(same ? train : of(validation_pairs_->set()));
}

std::vector<double> PretrainRun::log_likelihoods(const ExampleSet& set) {
  std::vector<int64_t> all(static_cast<size_t>(set.items()));
  std::iota(all.begin(), all.end(), int64_t{0});
  return log_likelihoods(set, all);
}

std::vector<double> PretrainRun::log_likelihoods(const ExampleSet& set,
                                                 const std::vector<int64_t>& items) {
  const std::shared_ptr<const ExampleSet> held(examples_, &set);
  ExampleSource source(held, items, {.sequence_length = config_.sequence_length});
  return evaluator_.log_likelihoods(set, source, eval_plan_);
}

// Mean loss of the validation pairs.
double PretrainRun::preference_loss() {
  const std::vector<double> now =
      log_likelihoods(validation_pairs_->set(), validation_pairs_->items());
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
    const GroupCoord &dp = groups_.layout.dp, &site = state_.data_site;
    const int64_t group_samples = config_.micro_batch_size * dp.size;
    // Each site reads a share of the batch, so that its samples do not depend on its layout.
    const int64_t first =
        position_.consumed_samples + config_.train_batch_size / site.size * site.index;
    for (size_t i = 0; i < batches_.size(); ++i) {
      const int64_t consumed = first + static_cast<int64_t>(i) * group_samples;
      train_data_->fill(first_sample(consumed, config_.micro_batch_size, dp.index),
                        config_.micro_batch_size, batches_[i]);
    }
  }
  step_.start(position_.step, batches_, train_plan_);
  ++position_.step;
  position_.consumed_samples += config_.train_batch_size;
  OpenStep& open = open_steps_.emplace_back();
  open.position = position_;
  open.allocations = allocation_count();
}

// Calls use() with the weights that all sites share, for evaluations and checkpoints.
template <class Use>
void PretrainRun::with_shared_weights(const Use& use) {
  if (outer_ == nullptr) return use();
  outer_->with_shared_weights(use);
}

// Reads results until at most `open` steps are open.
void PretrainRun::finish_steps(int64_t open) {
  while (std::ssize(open_steps_) > open) finish_step();
}

// Reads the result of the oldest open step, evaluates if that is due, and writes the record.
void PretrainRun::finish_step() {
  const StepResult own = step_.finish(), result = over_sites(own);
  if (device_.gpu != nullptr) log_notes(*device_.gpu);
  const auto now = std::chrono::steady_clock::now();
  const std::chrono::duration<double> took = now - std::exchange(counted_until_, now);
  const OpenStep open = std::move(open_steps_.front());
  open_steps_.pop_front();
  StepMetrics metrics = describe_step(open, result, took.count());
  std::ranges::copy(open.sent.extra, std::back_inserter(metrics.extra));
  std::optional<WaitEnded> wait;
  if (!ended_wait_) try {
      evaluate_if_due(metrics);
    } catch (const WaitEnded& e) {
      wait = e;
    }
  if (records_) records_->write(metrics);
  check_divergence(metrics.step, own, result.consecutive_skips);
  if (wait) throw *wait;
}

void PretrainRun::evaluate_if_due(StepMetrics& metrics) {
  const bool last = metrics.step == config_.train_steps;
  if (last || due(config_.eval_interval, metrics.step)) {
    TRIREME_CHECK(open_steps_.empty(), "evaluation while steps are open");
    with_shared_weights([&] { validate(metrics); });
  }
  if (last && test_data_) metrics.test_loss = loss_on(*test_data_, "test", metrics);
}

// True if a step was skipped only because a dynamic loss scale is still too large.
bool PretrainRun::is_loss_scale_search(const StepResult& result) const {
  const LossScaleConfig& scale = config_.loss_scale;
  return config_.dtype == DType::kF16 && scale.static_scale == 0 && std::isfinite(result.loss) &&
         result.loss_scale > scale.min_scale;
}

// result: of this site. skips: the most skipped steps in a row of one site, so that all sites stop.
void PretrainRun::check_divergence(int64_t step, const StepResult& result, int64_t skips) {
  if (!result.skipped) position_.consecutive_skips = 0;
  if (result.skipped) {
    if (!is_loss_scale_search(result)) ++position_.consecutive_skips;
    first_bad_ = result.first_bad;
    if (groups_.world.rank() == 0)  // every rank of a site has the same result
      log_warning("step ", step, " skipped: ", result.first_bad, " is not finite (loss ",
                  result.loss, ", gradient norm ", result.grad_norm, ", loss scale ",
                  result.loss_scale, "); ", result.consecutive_skips, " in a row");
  }
  if (skips >= config_.max_consecutive_skips)
    fail_diverged(step, skips, concat("stopped at step ", step));
}

void PretrainRun::fail_diverged(int64_t step, int64_t skips, const std::string& what) const {
  throw Error(concat(what, ": ", skips, skips == 1 ? " step was" : " steps in a row were",
                     " not finite, the last by ",
                     first_bad_.empty() ? "a value of another site" : first_bad_, "; ",
                     last_checkpoint_.empty()
                         ? concat("no checkpoint was saved before step ", step - skips + 1, "; ")
                         : "",
                     advice_for_divergence(config_, last_checkpoint_)),
              ExitCode::kDiverged);
}

// Loss on evaluation.eval_iters batches of `data`.
double PretrainRun::loss_on(BatchSource& data, const std::string& name, StepMetrics& metrics) {
  // 0: all samples; also if the number of samples would overflow.
  const int64_t batch = config_.train_batch_size;
  const bool countable = config_.eval_steps <= std::numeric_limits<int64_t>::max() / batch;
  const int64_t samples = countable ? config_.eval_steps * batch : 0;
  const EvalResult result = evaluator_.run(data, samples, eval_plan_);
  if (result.samples < result.all_samples)
    metrics.partial_sets[name] = concat(result.samples, " of ", result.all_samples);
  return result.loss;
}

void PretrainRun::validate(StepMetrics& metrics) {
  for (const auto& [name, source] : validation_data_) {
    const double loss =
        validation_pairs_ != nullptr ? preference_loss() : loss_on(*source, name, metrics);
    if (name.empty())
      metrics.validation_loss = loss;
    else
      metrics.validation_losses.emplace_back(name, loss);
  }
}

void PretrainRun::save_if_finite(StopRequest request) {
  if (sites_.position().size > 1)
    position_.consecutive_skips =
        sites_.peers().all_reduce_scalar(position_.consecutive_skips, ReduceOp::kMax);
  const bool last = position_.step == config_.train_steps;
  if (position_.consecutive_skips > 0 && !last && request != StopRequest::kSaveAndStop) {
    if (!save_waits_)
      log_warning("the checkpoint of step ", position_.step,
                  " is saved after the next step that is not skipped");
    save_waits_ = true;
    return;
  }
  save_waits_ = false;
  save();
  if (position_.consecutive_skips == 0) return;
  if (last)
    fail_diverged(position_.step, position_.consecutive_skips,
                  concat("ended at step ", position_.step));
  log_warning("step ", position_.step, " was skipped: --resume auto will continue from an ",
              "older checkpoint, if there is one");
}

void PretrainRun::save() {
  if (last_saved_ == position_.step) return;
  if (hub_ != nullptr) end_replaced_rounds();
  SavedCheckpoint saved;
  agreed(group_, [&] {
    if (keeps_algorithms())
      save_gemm_algorithms(config_.cuda_gemm_algorithms, group_.rank(), *device_.gpu);
    with_shared_weights([&] {
      saved = save_train_checkpoint(ctx_, config_, state_, position_, groups_,
                                    {&lineage_, &data_files_, &group_});
    });
  });
  last_saved_ = position_.step;
  if (position_.consecutive_skips == 0) last_checkpoint_ = saved.directory;
  if (group_.rank() == 0) mark_saved(saved.directory);
  // scripts/trireme.sbatch searches for this line.
  log_info("saved ", saved.directory, " (", format_bytes(saved.bytes), ")");
  if (group_.rank() == 0 && !saved.warning.empty()) log_warning(saved.warning);
  if (position_.consecutive_skips == 0) write_adapter(saved.directory);
}

void PretrainRun::mark_saved(const std::string& checkpoint) const {
  try {
    write_saved_mark(config_, checkpoint);
  } catch (const InputError& e) {  // the checkpoint is complete
    log_warning(e.what(), "; the run continues without this file");
  }
}

// Writes the adapters of a checkpoint in PEFT's format to output_dir/adapter.
void PretrainRun::write_adapter(const std::string& checkpoint) const {
  if (!config_.finetune.lora.enabled() || group_.rank() != 0) return;
  const std::string folder = (std::filesystem::path(config_.output_dir) / "adapter").string();
  try {
    write_peft_adapter(config_.finetune.lora, config_.model, CheckpointModel(checkpoint),
                       lineage_.base, folder);
    write_chat_template_files(lineage_.chat_templates, folder);
    log_info("wrote ", folder, ", an adapter in PEFT's format");
  } catch (const InputError& e) {  // the checkpoint is complete
    log_warning("cannot write a PEFT adapter: ", e.what());
  }
}

// Creates output_dir and checkpoint.save again after one of them was removed or replaced, so that
// the run continues. Called on rank 0.
void PretrainRun::restore_directory() {
  records_.reset();
  lock_.reset();  // removes a lock file only if it is still this run's
  lock_ = std::make_unique<RunLock>(config_);
  check_own_records(config_);
  write_run_directory(config_);
  records_ = std::make_unique<RunRecords>(config_, position_.step);
  log_warning("output_dir ", config_.output_dir, " or checkpoint.save ", config_.checkpoint.save,
              " was removed or replaced while the run wrote to it: created again at step ",
              position_.step, "; the next step that is not skipped saves a checkpoint; ",
              "earlier records and checkpoints may be lost");
}

StopRequest PretrainRun::agreed_request() {
  constexpr int64_t kFailed = std::numeric_limits<int64_t>::max();  // above all requests
  auto mine = static_cast<int64_t>(signals_.take());
  std::exception_ptr failure;
  if (lock_ != nullptr && !lock_->holds()) {
    try {
      restore_directory();
      mine = std::max(mine, static_cast<int64_t>(StopRequest::kSave));
    } catch (...) {
      failure = std::current_exception();
      mine = kFailed;
    }
  }
  if (group_.size() > 1) mine = group_.all_reduce_scalar(mine, ReduceOp::kMax);
  if (mine == kFailed)
    agreed(group_, [&] {
      if (failure) std::rethrow_exception(failure);
    });
  return static_cast<StopRequest>(mine);
}

ExitCode PretrainRun::run() {
  agreed(group_, [&] {
    open_data();
    if (keeps_algorithms())
      open_gemm_algorithms(config_.cuda_gemm_algorithms, group_.rank(), *device_.gpu);
  });
  make_plans();
  agreed(group_, [&] { check_device_memory(); });
  if (options_.validate_only) {
    from_rank_0(group_, [&] { return plan_start().checkpoint; });
    if (group_.rank() == 0) {
      if (!no_validation_.empty()) log_warning("the run has no validation loss: ", no_validation_);
      std::printf("configuration is valid for %d rank%s\n%s%s", group_.size(),
                  group_.size() == 1 ? "" : "s", memory_report().c_str(),
                  train_plan_.table(8).c_str());
    }
    return ExitCode::kDone;
  }
  start_or_resume();
  log_info("device ", describe_device(device_, ctx_.threads), "; ", world_.describe());
  log_info(parameters_, " parameters, ", dtype_name(config_.dtype), "; ", train_data_->describe());
  if (config_.outer.enabled()) log_info(describe_outer(config_.outer, groups_.world.size()));
  if (!examples_summary_.empty()) log_info(examples_summary_);
  if (group_.rank() == 0 && examples_ != nullptr)
    for (const std::string& warning : examples_->warnings) log_warning(warning);
  for (const auto& [name, source] : validation_data_)
    if (!name.empty()) log_info("validation set ", name, ": ", source->describe());
  if (!step_.graphs().why_not().empty())
    log_info("cuda.graphs: not used: ", step_.graphs().why_not());
  log_info(memory_report());
  peak_tflops_ = peak_of_rank();

  signals_.training_begins(world_);
  try {
    while (position_.step < config_.train_steps)
      if (train_step()) return ExitCode::kStoppedSaved;
    if (hub_ == nullptr) return ExitCode::kDone;
    if (last_saved_ < 0) save();  // the other sites were at the end when this one joined
  } catch (const WaitEnded& wait) {
    return stop_without_rounds(wait);
  }
  hub_->leave(true);
  return ExitCode::kDone;
}

bool PretrainRun::train_step() {
  start_step();
  if (outer_ != nullptr) run_outer_rounds();
  const bool last = position_.step >= config_.train_steps;
  open_steps_.back().profile = profile_;
  if (world_.size() > 1) traffic_metrics_.add(world_, open_steps_.back().sent);
  const bool saves = last || save_waits_ || due(config_.checkpoint.save_interval, position_.step);
  // Saving and evaluation need the model after this step, so all open steps are finished first.
  const bool read = saves || due(config_.eval_interval, position_.step);
  finish_steps(read ? 0 : step_.max_open() - 1);
  const StopRequest request = agreed_request();
  stops_ = request == StopRequest::kSaveAndStop;
  if (saves || request != StopRequest::kNone) {
    finish_steps(0);
    save_if_finite(request);
  }
  if (!stops_ || last) return false;
  log_info("stopped by request at step ", position_.step, "; continue with --resume auto");
  if (hub_ != nullptr) hub_->leave(false);
  return true;
}

ExitCode pretrain(const RunConfig& config, World& world, const PretrainOptions& options,
                  SignalRequests& signals) {
  // The state's constructor throws if the parameters of a rank are impossible in its layout.
  agreed(world.world(), [&] { (void)make_train_state(config, world.world()); });
  return PretrainRun(config, world, options, signals).run();
}

}  // namespace trireme
