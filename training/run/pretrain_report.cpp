#include <algorithm>
#include <array>

#include "engine/device/timing.h"
#include "engine/observe/log.h"
#include "engine/ops/gemm/peak.h"
#include "parallel/store_block_copies.h"
#include "training/run/pretrain_run.h"
#include "transformer/model/flops.h"

namespace trireme {
namespace {

constexpr const char* kHostRounds = "rounds of sites (host)  ";

}  // namespace

// GPU: the vendor's nominal peak. CPU: the peak measured at the start of the run.
double PretrainRun::peak_of_rank() const {
  if (device_.gpu != nullptr) return cuda::nominal_tflops(device_.gpu->info, config_.dtype);
  const MachinePeak peak = measure_peak(ctx_.threads, false);  // false: needs no extra memory
  const bool half = config_.dtype == DType::kBF16;
  return (half ? peak.bfloat16_gflops : peak.float32_gflops) / 1e3;
}

// Bytes of memory that this rank needs, on a GPU of its memory; without the optimizer's state file.
int64_t PretrainRun::planned_bytes() const {
  const int64_t tokens = config_.micro_batch_size * config_.sequence_length / config_.parallel.cp;
  const int64_t batches = device_.gpu == nullptr
                              ? 0  // used in place
                              : DeviceBatches::bytes(tokens, config_.gradient_accumulation_steps,
                                                     config_.model.attention_chunk);
  return state_.bytes() + arena_bytes() + state_.model.position_bytes(config_.sequence_length) +
         batches + (device_.gpu == nullptr ? state_.host_bytes() : 0);
}

// Logs a warning if the second copies of weights are not each inside a node.
void PretrainRun::warn_of_copies() const {
  const int ranks = config_.zero.copy_ranks;
  if (ranks == 1) return;
  const int fits = max_copy_ranks(config_.parallel, nodes_of_site(config_, group_),
                                  config_.model.moe.experts > 0);
  if (fits % ranks != 0)
    log_warning("zero_optimization.zero_hpz_partition_size ", ranks,
                ": neighbours are on several nodes, so that backward gathers between nodes too; ",
                "set it to ", fits, ", the largest size inside a node");
}

std::string PretrainRun::memory_report() const {
  const ParameterStore& store = state_.store;
  const int64_t activations = arena_bytes();
  const int64_t positions = state_.model.position_bytes(config_.sequence_length);
  const bool on_gpu = device_.gpu != nullptr;
  const int64_t host = state_.host_bytes();
  const int64_t batches =
      planned_bytes() - state_.bytes() - activations - positions - (on_gpu ? 0 : host);
  const auto line = [](const char* what, int64_t bytes) {
    return concat("  ", what, " ", format_bytes(bytes), " (", bytes, " bytes)\n");
  };
  std::string report = concat(
      "memory of each rank, from a planning run of one step:\n",
      line("parameters              ", store.value_bytes()),
      store.packed_bytes() == 0 ? std::string()
                                : line("  of these in 4 bits    ", store.packed_bytes()),
      store.copy_bytes() == 0 ? std::string()
                              : line("second copy of these    ", store.copy_bytes()),
      line("gradients               ", store.gradient_bytes()),
      line("optimizer state         ", state_.optimizer.state_bytes()),
      state_.optimizer.file_bytes() == 0
          ? std::string()
          : line("optimizer state, in file", state_.optimizer.file_bytes()),
      state_.compression == nullptr ? std::string()
                                    : line("compressed gradients    ", state_.compression->bytes()),
      state_.outer == nullptr ? std::string()
                              : line("weights of the sites    ", state_.outer->bytes()),
      line("activations and scratch ", activations), line("rotary table            ", positions),
      batches == 0 ? std::string() : line("micro-batches           ", batches),
      host == 0 || on_gpu ? std::string() : line(kHostRounds, host),
      line("total                   ", planned_bytes()),
      host == 0 || !on_gpu ? std::string() : line(kHostRounds, host));  // not of the GPU's memory
  if (device_.gpu == nullptr) return report;
  const cuda::DeviceMemory memory = cuda::device_memory(*device_.gpu);
  report += concat("memory of GPU ", device_.gpu->device, ":\n",
                   line("in use now              ", memory.used),
                   line("all                     ", memory.total));
  return report;
}

// Checks that the GPU has enough free memory, before the run allocates any. Already in use are the
// memory of the runtime, of libraries, of communicator buffers and of other processes.
void PretrainRun::check_device_memory() const {
  if (device_.gpu == nullptr) return;
  const cuda::DeviceMemory memory = cuda::device_memory(*device_.gpu);
  if (planned_bytes() <= memory.free()) return;
  fail_input("the run needs ", format_bytes(planned_bytes()), " on each rank, but GPU ",
             device_.gpu->device, " has only ", format_bytes(memory.free()), " free of ",
             format_bytes(memory.total),
             "; lower train_micro_batch_size_per_gpu or sequence_length, set "
             "activation_checkpointing.granularity to selective or full, or shard the model over "
             "more ranks (zero_optimization.stage, tensor or pipeline parallelism)\n",
             memory_report());
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
  // An MFU above 1 would mean that the peak was measured on a busy machine; it is not reported.
  if (m.model_tflops <= peak_tflops_) m.mfu = m.model_tflops / peak_tflops_;
  m.arena_bytes = ctx_.arena.capacity();
  m.allocation_count = open.allocations;
  m.round = open.round;
  m.skipped = result.skipped;
  m.skipped_iterations = m.nan_iterations = result.total_skips;
  double known = 0;
  for (size_t c = 0; c + 1 < kTimeCategories; ++c) {
    const auto category = static_cast<TimeCategory>(c);
    // On a GPU, host times measure only the queueing of work.
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

}  // namespace trireme
