#include "training/config/read_optimization.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "optim/schedule.h"
#include "parallel/config_keys.h"

namespace trireme {
namespace {

// Default warm-up of a fine-tuning run.
constexpr double kFinetuneWarmupRatio = 0.03;

// Checks that the fp8 matrix products have sizes that the library's kernels support
// (engine/ops/quantized/float8_gemm.h).
void check_float8_sizes(const ConfigValues& values, const RunConfig& config, ConfigReport& report) {
  const auto check = [&](const char* what, int64_t size, int64_t multiple) {
    if (size % multiple != 0)
      report.error(values.spelled("fp8.enabled"),
                   concat(what, " is ", size, ", expected a multiple of ", multiple));
  };
  constexpr int64_t kMultiple = 16;
  const ModelConfig& model = config.model;
  check("hidden_size of the model", model.hidden_size, kMultiple);
  const LatentConfig& latent = model.latent;
  if (latent.kv_rank > 0) {
    check("q_lora_rank of the model", latent.q_rank, kMultiple);
    check("kv_lora_rank of the model", latent.kv_rank, kMultiple);
    check("qk_nope_head_dim of the model", latent.nope_dim, kMultiple);
    check("qk_rope_head_dim of the model", latent.rope_dim, kMultiple);
    check("v_head_dim of the model", latent.value_dim, kMultiple);
  } else {
    check("head_dim of the model", model.head_dim, kMultiple);
  }
  check("intermediate_size of the model", model.intermediate_size, kMultiple * config.parallel.tp);
  check("the shared experts' width (shared_expert_intermediate_size, n_shared_experts)",
        model.moe.shared_intermediate_size, kMultiple * config.parallel.tp);
  check("the number of tokens of a forward pass (train_micro_batch_size_per_gpu x sequence_length)",
        config.micro_batch_size * config.sequence_length, kMultiple * config.parallel.cp);
}

}  // namespace

void read_float8(const ConfigValues& values, RunConfig& config, ConfigReport& report) {
  Float8Config& float8 = config.float8;
  float8.enabled = values.flag("fp8.enabled");
  for (const char* key :
       {"fp8.format", "fp8.recipe", "fp8.amax_history_len", "fp8.amax_compute_algo", "fp8.margin"})
    if (!float8.enabled && values.given(key))
      report.error(values.spelled(key), "needs fp8.enabled: true");
  if (!float8.enabled) return;
  const std::string recipe = values.word("fp8.recipe");
  float8.hybrid = values.word("fp8.format") == "hybrid";
  float8.recipe = recipe == "delayed"      ? Float8Recipe::kDelayed
                  : recipe == "tensorwise" ? Float8Recipe::kTensorwise
                                           : Float8Recipe::kBlockwise;
  const bool newest = values.word("fp8.amax_compute_algo") == "most_recent";
  float8.history = newest ? 1 : values.integer("fp8.amax_history_len");
  float8.margin = static_cast<int>(values.integer("fp8.margin"));
  if (config.dtype == DType::kF16)
    report.error(values.spelled("fp8.enabled"),
                 "is not supported with fp16.enabled; supported: bf16.enabled, or fp32");
  if (config.parallel.tp_comm_overlap == Overlap::kOn)
    report.error(values.spelled(key::kTensorOverlap),
                 "true is not supported with fp8.enabled, whose scales need all tokens at once; "
                 "supported: auto, false");
  check_float8_sizes(values, config, report);
}

namespace {

// Reads DeepSpeed's three schedules, whose defaults differ from ours.
DecayStyle read_deepspeed_type(const ConfigValues& values, const std::string& type,
                               RunConfig& config, ConfigReport& report) {
  const char *const kShape = "scheduler.params.warmup_type", *const kSteps =
                                                                 "scheduler.params.warmup_steps";
  if (!values.given(kShape)) {
    config.scheduler.log_warmup = true;
    report.note(values.spelled("scheduler.type"),
                concat(type, " has a logarithmic warm-up, as in DeepSpeed; ", kShape,
                       " \"linear\" makes it linear"));
  }
  if (!config.finetune.enabled && !values.given(kSteps) && !values.is_auto_default(kSteps) &&
      !values.given("scheduler.params.warmup_ratio"))
    config.scheduler.warmup_steps = 1000;
  if (type == "WarmupLR") return DecayStyle::kConstant;
  if (type == "WarmupDecayLR") return DecayStyle::kLinear;
  const bool ratio = values.given("scheduler.params.cos_min_ratio");
  const double part = ratio ? values.number("scheduler.params.cos_min_ratio") : 1e-4;
  if (!values.given("scheduler.params.min_lr"))
    config.scheduler.min_lr = part * config.optimizer.lr;
  return DecayStyle::kCosine;
}

void read_decay_steps(const ConfigValues& values, RunConfig& config, ConfigReport& report) {
  const char* const kKey = "scheduler.params.decay_steps";
  const bool wsd = config.scheduler.style == DecayStyle::kWsd;
  const int64_t tenth = config.train_steps / 10 + (config.train_steps % 10 != 0 ? 1 : 0);
  config.scheduler.decay_steps = !values.is_auto(kKey) ? values.integer(kKey)
                                 : wsd                 ? tenth
                                                       : config.train_steps;
  const int64_t warmup = config.scheduler.warmup_steps, decay = config.scheduler.decay_steps;
  if (config.train_steps < 1) return;
  if (warmup > config.train_steps)
    return report.error(values.spelled("scheduler.params.warmup_steps"),
                        concat(warmup, " is more than train_steps ", config.train_steps));
  if (wsd && values.spelled(kKey) == "lr_decay_iters")
    report.error("lr_decay_iters",
                 "is the end of the whole schedule in Megatron; with WSD give "
                 "lr_wsd_decay_iters, the length of the decay");
  else if (wsd && !values.is_auto(kKey) && warmup + decay > config.train_steps)
    report.error(values.spelled(kKey),
                 concat("warm-up ", warmup, " and decay ", decay,
                        " together are more than train_steps ", config.train_steps));
  else if (!wsd && !values.is_auto(kKey) && decay < warmup)
    report.error(values.spelled(kKey), concat("the decay ends at step ", decay,
                                              ", before the end of the warm-up at ", warmup));
  if (!wsd || !values.is_auto(kKey)) return;
  // An automatic decay is shortened to the steps that the warm-up leaves, at least one.
  if (warmup == config.train_steps)
    return report.error(values.spelled("scheduler.params.warmup_steps"),
                        concat(warmup, " leaves no step of train_steps ", config.train_steps,
                               " for the decay of WSD"));
  config.scheduler.decay_steps = std::min(decay, config.train_steps - warmup);
}

int64_t read_warmup(const ConfigValues& values, const RunConfig& config, ConfigReport& report) {
  const char *const kSteps = "scheduler.params.warmup_steps", *const kRatio =
                                                                  "scheduler.params.warmup_ratio";
  const auto part = [&](double ratio) {
    return static_cast<int64_t>(std::ceil(ratio * static_cast<double>(config.train_steps)));
  };
  // HuggingFace's files have both keys; the unused one is 0.
  const int64_t steps = values.integer(kSteps);
  const double ratio = values.given(kRatio) ? values.number(kRatio) : 0;
  if (ratio > 0 && steps > 0)
    report.error(values.spelled(kRatio),
                 concat("sets the same as ", values.spelled(kSteps), "; keep one"));
  if (values.given(kRatio) && steps == 0) return part(ratio);
  if (!config.finetune.enabled || values.given(kSteps)) return steps;
  // The default warm-up is shortened to what a configured decay leaves.
  int64_t most = config.train_steps - 1;
  if (const char* const kDecay = "scheduler.params.decay_steps"; !values.is_auto(kDecay)) {
    const int64_t decay = values.integer(kDecay);
    const bool at_the_end = values.word("scheduler.type") == "WSD";
    most = std::min(most, at_the_end ? config.train_steps - decay : decay);
  }
  return std::max<int64_t>(0, std::min(part(kFinetuneWarmupRatio), most));
}

DecayStyle style_of(const std::string& type) {
  if (type == "constant") return DecayStyle::kConstant;
  if (type == "linear") return DecayStyle::kLinear;
  if (type == "inverse_sqrt") return DecayStyle::kInverseSqrt;
  return type == "WSD" ? DecayStyle::kWsd : DecayStyle::kCosine;
}

WsdDecay wsd_decay_of(const std::string& word) {
  if (word == "cosine") return WsdDecay::kCosine;
  if (word == "exponential") return WsdDecay::kExponential;
  return word == "minus_sqrt" ? WsdDecay::kMinusSqrt : WsdDecay::kLinear;
}

// Notes if all updates after the warm-up have rate 0, for example because the decay ends with the
// warm-up.
void note_zero_rates(const ConfigValues& values, const RunConfig& config, ConfigReport& report) {
  int64_t first = config.scheduler.warmup_steps;  // from 0
  const auto rate = [&](int64_t step) {
    return learning_rate(config.scheduler, config.optimizer.lr, step, config.train_steps);
  };
  if (!report.ok() || config.optimizer.lr == 0 || first + 1 >= config.train_steps) return;
  if (rate(first) > 0) ++first;
  if (rate(first) > 0) return;
  report.note(values.spelled("scheduler.params.warmup_steps"),
              concat("the learning rate is 0 from step ", first + 1, " to the last step ",
                     config.train_steps, ", because the decay ends with the warm-up"));
}

}  // namespace

void read_scheduler(const ConfigValues& values, RunConfig& config, ConfigReport& report) {
  SchedulerConfig& scheduler = config.scheduler;
  const std::string type = values.word("scheduler.type");
  scheduler.warmup_steps = read_warmup(values, config, report);
  scheduler.min_lr = values.number("scheduler.params.min_lr");
  scheduler.log_warmup = values.word("scheduler.params.warmup_type") == "log";
  scheduler.wsd_decay = wsd_decay_of(values.word("scheduler.params.decay_style"));
  scheduler.deepspeed = type.starts_with("Warmup");
  scheduler.style =
      scheduler.deepspeed ? read_deepspeed_type(values, type, config, report) : style_of(type);
  if (values.given("scheduler.params.decay_style") && scheduler.style != DecayStyle::kWsd)
    report.error(values.spelled("scheduler.params.decay_style"),
                 concat("needs scheduler.type WSD, got ", type));
  const char* const kMaxLr = "scheduler.params.warmup_max_lr";
  if (values.given(kMaxLr) && values.number(kMaxLr) != config.optimizer.lr)
    report.error(kMaxLr, concat(values.number(kMaxLr), " differs from optimizer.params.lr ",
                                config.optimizer.lr, ": both are the rate after warm-up"));
  if (values.given("scheduler.params.cos_min_ratio") && type != "WarmupCosineLR")
    report.error("scheduler.params.cos_min_ratio",
                 "needs scheduler.type WarmupCosineLR; give scheduler.params.min_lr instead");
  if (scheduler.min_lr > config.optimizer.lr)
    report.error(
        values.spelled("scheduler.params.min_lr"),
        concat(scheduler.min_lr, " is more than optimizer.params.lr ", config.optimizer.lr));
  read_decay_steps(values, config, report);
  note_zero_rates(values, config, report);
}

}  // namespace trireme
