#include "training/config/compression.h"

#include <nlohmann/json.hpp>

#include "optim/optimizer.h"
#include "parallel/config_keys.h"
#include "training/config/compressor_options.h"

namespace trireme {
namespace {

constexpr const char *kGradients = "compression.gradients",
                     *kMethod = "compression.gradients.method",
                     *kBits = "compression.gradients.bits", *kScope = "compression.gradients.scope",
                     *kWarmup = "compression.gradients.warmup_steps";
constexpr const char *kWeightMethod = "compression.parameters.method",
                     *kWeightBits = "compression.parameters.bits",
                     *kWeightBlock = "compression.parameters.block",
                     *kWeightMinBytes = "compression.parameters.min_bytes",
                     *kQuantizedWeights = "zero_optimization.zero_quantized_weights";
constexpr const char *kExactWeights = "none", *kQuantize = "quantize";
constexpr const char *kAll = "all", *kInterNode = "inter_node";
constexpr double kMaxWarmupSteps = 1e12, kMaxMinWeightBytes = 1e15, kMaxWeightBlock = 1 << 20;

// Refuses what compressed gradients do not work with.
void check_run(const ConfigValues& values, const RunConfig& config, ConfigReport& report) {
  const bool by_optimizer = !values.given(kMethod);  // an optimizer that exchanges moments
  const auto refuse = [&](const std::string& reason) {
    report.error(values.spelled(by_optimizer ? "optimizer.type" : kMethod), reason);
  };
  if (config.zero.stage > 1 && config.compression.moment_beta == 0)
    refuse(concat("needs zero_optimization.stage 0 or 1, got ", config.zero.stage));
  if (config.dtype == DType::kF16)
    refuse(
        "is not supported with fp16.enabled, whose gradients change their scale; supported: "
        "bf16.enabled, or fp32");
  check_compressor_layout(values, kGradients, config, config.compression, report);
  const ParallelSizes& sizes = config.parallel;
  const bool by_node = config.compression.scope == CompressionScope::kNodes;
  if (sizes.dp == 1 && !(by_node && sizes.cp > 1) && !by_optimizer)
    report.note(values.spelled(kMethod), concat("has no effect with ", key::kData, " 1"));
}

// The optimizer's moments are exchanged in place of gradients.
void read_moments(const ConfigValues& values, const Optimizer::MomentExchange& moments,
                  RunConfig& config, ConfigReport& report) {
  GradientCompressionConfig& gradients = config.compression;
  const auto refuse = [&](const std::string& reason) {
    report.error(values.spelled("optimizer.type"),
                 concat(config.optimizer.rule->name(), " ", reason));
  };
  if (values.given(kWarmup) && gradients.warmup_steps != moments.from_step)
    report.error(
        values.spelled(kWarmup),
        concat(gradients.warmup_steps, " differs from optimizer.params.freeze_step ",
               moments.from_step, ", after which ", config.optimizer.rule->name(), " compresses"));
  gradients.warmup_steps = moments.from_step;
  gradients.moment_beta = moments.beta;
  if (config.zero.stage > 0)
    refuse(
        concat("needs whole moments: set zero_optimization.stage to 0, got ", config.zero.stage));
  if (config.optimizer.state_dtype == DType::kBF16)
    refuse("needs exact moments: set optimizer.state_dtype to fp32");
  if (config.model.moe.experts > 0)
    refuse(
        "is not supported with experts; set optimizer.type to AdamW and "
        "compression.gradients.method to quantize");
}

void read_gradients(const ConfigValues& values, RunConfig& config, ConfigReport& report) {
  GradientCompressionConfig& gradients = config.compression;
  const auto moments = config.optimizer.rule->moment_exchange();
  const bool chosen = read_compressor(values, kGradients, gradients, report) != nullptr;
  if (!chosen && (!moments || values.given(kMethod))) {
    for (const char* path : {kScope, kWarmup})
      if (values.given(path)) report.error(values.spelled(path), concat("needs a ", kMethod));
    return;
  }
  gradients.enabled = true;
  if (moments && !values.given(kBits)) gradients.options.bits = 1;
  gradients.scope =
      values.word(kScope) == kInterNode ? CompressionScope::kNodes : CompressionScope::kReplicas;
  gradients.warmup_steps = values.integer(kWarmup);
  if (moments) read_moments(values, *moments, config, report);
  check_run(values, config, report);
}

void read_weights(const ConfigValues& values, RunConfig& config, ConfigReport& report) {
  WeightCompressionConfig& weights = config.weight_compression;
  const bool by_flag = values.flag(kQuantizedWeights) && !values.given(kWeightMethod);
  if (values.given(kQuantizedWeights) && values.given(kWeightMethod) &&
      values.flag(kQuantizedWeights) != (values.word(kWeightMethod) == kQuantize))
    report.error(
        values.spelled(kQuantizedWeights),
        concat("contradicts ", values.spelled(kWeightMethod), " ", values.word(kWeightMethod)));
  if (values.word(kWeightMethod) != kQuantize && !by_flag) {
    for (const char* path : {kWeightBits, kWeightBlock, kWeightMinBytes})
      if (values.given(path))
        report.error(values.spelled(path), concat("needs ", kWeightMethod, " ", kQuantize));
    return;
  }
  weights.enabled = true;
  weights.bits = static_cast<int>(values.integer(kWeightBits));
  if (!values.is_auto(kWeightBlock)) weights.block = values.integer(kWeightBlock);
  weights.min_bytes = values.integer(kWeightMinBytes);
  if (weights.bits != 8 && weights.bits != 4)
    report.error(values.spelled(kWeightBits), concat("is ", weights.bits, ", expected 8 or 4"));
  if (weights.block % 8 != 0)
    report.error(values.spelled(kWeightBlock),
                 concat("is ", weights.block, ", expected a multiple of 8"));
  if (config.zero.stage != 3)
    report.error(
        values.spelled(by_flag ? kQuantizedWeights : kWeightMethod),
        concat("needs zero_optimization.stage 3, which gathers weights in every step, got ",
               config.zero.stage));
}

Json weights_to_json(const WeightCompressionConfig& weights) {
  return {{"method", kQuantize},
          {"bits", weights.bits},
          {"block", weights.block},
          {"min_bytes", weights.min_bytes}};
}

}  // namespace

void add_compression_keys(Schema& s) {
  const GradientCompressionConfig defaults;
  s.section("compression",
            "Compression of what data-parallel ranks exchange, for slow links. It changes the "
            "numbers: with compressed gradients they depend on the number of replicas "
            "([design](../design/outer.md)), with quantized weights on no layout "
            "([design](../design/zero.md#quantized-weights)).");
  add_compressor_keys(s, kGradients, "code of gradients in their sum over the ranks");
  s.choice(kScope, kAll, {kAll, kInterNode},
           "ranks between which sums are compressed; all: replicas of the model; inter_node: nodes "
           "(comm.ranks_per_node), exact inside of each");
  s.integer(kWarmup, std::to_string(defaults.warmup_steps),
            "first steps of the run with exact sums")
      .at_least(0)
      .at_most(kMaxWarmupSteps);
  const WeightCompressionConfig weights;
  s.choice(kWeightMethod, kExactWeights, {kExactWeights, kQuantize},
           "code of the weights that ZeRO stage 3 gathers; quantize: 8 or 4 bits per element and a "
           "scale per block; the ranks that store them keep them exactly");
  s.boolean(kQuantizedWeights, false,
            "DeepSpeed's name for compression.parameters.method quantize");
  s.integer(kWeightBits, std::to_string(weights.bits), "bits per element, 8 or 4")
      .at_least(1)
      .at_most(8);
  s.integer(kWeightBlock, "\"auto\"",
            "elements of a row that have one scale, a multiple of 8; auto: 256")
      .or_auto()
      .at_least(1)
      .at_most(kMaxWeightBlock);
  s.integer(kWeightMinBytes, std::to_string(weights.min_bytes),
            "tensors that are smaller in fp32 are sent exactly, such as norm weights")
      .at_least(0)
      .at_most(kMaxMinWeightBytes);
}

void read_compression(const ConfigValues& values, RunConfig& config, ConfigReport& report) {
  read_gradients(values, config, report);
  read_weights(values, config, report);
}

Json compression_to_json(const RunConfig& config) {
  const GradientCompressionConfig& gradients = config.compression;
  Json json = compressor_to_json(gradients);
  if (gradients.enabled) {
    json["scope"] = gradients.scope == CompressionScope::kNodes ? kInterNode : kAll;
    json["warmup_steps"] = gradients.warmup_steps;
  }
  json = {{"gradients", json}};
  if (config.weight_compression.enabled)
    json["parameters"] = weights_to_json(config.weight_compression);
  return json;
}

}  // namespace trireme
