// Section "compression" of the run configuration.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "parallel/outer/compressors/compressors.h"
#include "tests/training/config/small_run.h"
#include "training/config/compression.h"

namespace trireme::test_compression {
using test::joined;
using test::read;
using test::refusal;

namespace {

const std::string kMethod = "compression.gradients.method=";

std::vector<std::string> with(const std::string& method,
                              const std::vector<std::string>& more = {}) {
  return joined({kMethod + method}, more);
}

TEST(CompressionConfig, IsOffByDefault) {
  EXPECT_FALSE(read({}, 2).compression.enabled);
  EXPECT_FALSE(read(with("none"), 2).compression.enabled);
  EXPECT_EQ(trajectory_hash(read(with("none"), 2)), trajectory_hash(read({}, 2)));
}

TEST(CompressionConfig, EveryMethodIsReadAndWritten) {
  for (const CompressorRow& row : compressors()) {
    const RunConfig config = read(with(row.method), 2);
    EXPECT_TRUE(config.compression.enabled);
    EXPECT_TRUE(config.notes.empty());
    const Json json = run_config_to_json(config);
    EXPECT_EQ(run_config_to_json(read_run_config(json, 2)), json);
    EXPECT_NE(trajectory_hash(config), trajectory_hash(read({}, 2)));
  }
  const GradientCompressionConfig c =
      read(with("quantize",
                {"compression.gradients.bits=4", "compression.gradients.block=64",
                 "compression.gradients.error_feedback=false",
                 "compression.gradients.warmup_steps=7", "compression.gradients.min_bytes=9"}),
           2)
          .compression;
  EXPECT_EQ(c.options.bits, 4);
  EXPECT_EQ(c.options.block, 64);
  EXPECT_FALSE(c.error_feedback);
  EXPECT_EQ(c.warmup_steps, 7);
  EXPECT_EQ(c.min_bytes, 9);
  EXPECT_EQ(read(with("top_k", {"compression.gradients.ratio=0.5"}), 2).compression.options.ratio,
            0.5);
}

TEST(CompressionConfig, RefusesWhatDoesNotFit) {
  EXPECT_EQ(refusal({"compression.gradients.bits=4"}),
            "compression.gradients.bits: needs compression.gradients.method: quantize, top_k, "
            "random_k or powersgd");
  EXPECT_EQ(
      refusal(with("quantize", {"compression.gradients.ratio=0.5"})),
      "compression.gradients.ratio: is no option of quantize, whose options are: bits, block");
  EXPECT_EQ(refusal(with("quantize", {"compression.gradients.bits=3"})),
            "compression.gradients.bits: is 3, expected 8, 4 or 1");
  EXPECT_EQ(refusal(with("quantize", {"compression.gradients.block=9"})),
            "compression.gradients.block: is 9, expected a multiple of 8, at most 1048576");
  EXPECT_EQ(refusal(with("top_k", {"compression.gradients.block=20000"})),
            "compression.gradients.block: is 20000, expected at most 16384");
  EXPECT_NE(refusal(with("top_k", {"compression.gradients.ratio=0"})), "");
  EXPECT_NE(refusal(with("powersgd", {"compression.gradients.rank=65"})), "");
  EXPECT_EQ(
      refusal(with("zip")),
      "compression.gradients.method: must be one of none, quantize, top_k, random_k, powersgd; "
      "got \"zip\"");
  EXPECT_EQ(refusal(with("quantize", {"zero_optimization.stage=2"})),
            "compression.gradients.method: needs zero_optimization.stage 0 or 1, got 2");
  EXPECT_NE(refusal(with("quantize", {"fp16.enabled=true"})), "");
  EXPECT_NE(refusal(with("powersgd", {"cuda.autotune=true", "deterministic=false"})), "");
  EXPECT_EQ(refusal(with("top_k", {"cuda.autotune=true", "deterministic=false"})), "");
  EXPECT_EQ(refusal(with("powersgd", {"parallel.tensor_model_parallel_size=2"})),
            "compression.gradients.method: powersgd encodes whole matrices, which "
            "parallel.tensor_model_parallel_size above 1 divides: set it to 1, or use quantize, "
            "top_k or random_k");
}

TEST(CompressionConfig, OneBitAdamExchangesMoments) {
  const std::vector<std::string> type{"optimizer.type=OneBitAdam",
                                      "optimizer.params.freeze_step=7"};
  const auto and_also = [&](const std::vector<std::string>& more) { return joined(type, more); };
  const RunConfig config = read(type, 2);
  EXPECT_TRUE(config.compression.enabled);
  EXPECT_EQ(config.compression.options.bits, 1);
  EXPECT_EQ(config.compression.warmup_steps, 7);
  EXPECT_EQ(config.compression.moment_beta, 0.9);
  const Json json = run_config_to_json(config);
  EXPECT_EQ(run_config_to_json(read_run_config(json, 2)), json);
  EXPECT_EQ(read_run_config(json, 2).compression.moment_beta, 0.9);
  EXPECT_EQ(read(and_also({kMethod + "top_k"}), 2).compression.options.method, "top_k");
  EXPECT_EQ(read(and_also({kMethod + "quantize"}), 2).compression.options.bits, 1);
  EXPECT_FALSE(read(and_also({kMethod + "none"}), 2).compression.enabled);
  EXPECT_TRUE(read(type, 1).notes.empty());
  EXPECT_TRUE(refusal(and_also({"fp16.enabled=true"})).starts_with("optimizer.type: "));
  EXPECT_EQ(refusal(and_also({kMethod + "top_k", "compression.gradients.warmup_steps=3"})),
            "compression.gradients.warmup_steps: 3 differs from optimizer.params.freeze_step 7, "
            "after which OneBitAdam compresses");
  EXPECT_EQ(refusal(and_also({"zero_optimization.stage=1"})),
            "optimizer.type: OneBitAdam needs whole moments: set zero_optimization.stage to 0, "
            "got 1");
  EXPECT_EQ(refusal(and_also({"optimizer.state_dtype=bf16"})),
            "optimizer.type: OneBitAdam needs exact moments: set optimizer.state_dtype to fp32");
  const std::vector<std::string> experts{"model.model_type=mixtral", "model.num_local_experts=4",
                                         "model.num_experts_per_tok=2",
                                         "model.num_key_value_heads=2"};
  EXPECT_EQ(refusal(and_also(experts)),
            "optimizer.type: OneBitAdam is not supported with experts; set optimizer.type to AdamW "
            "and compression.gradients.method to quantize");
  EXPECT_EQ(refusal({type[0], "optimizer.params.freeze_step=1.5"}),
            "optimizer.params.freeze_step: 1.5 is not a whole number of steps");
  EXPECT_NE(refusal({"optimizer.params.freeze_step=7"}), "");  // of AdamW
}

TEST(CompressionConfig, OneReplicaNeedsNone) {
  const std::vector<std::string> notes = read(with("quantize"), 1).notes;
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0],
            "compression.gradients.method: has no effect with parallel.data_parallel_size 1");
}

std::vector<std::string> quantized_weights(const std::vector<std::string>& more = {}) {
  return joined({"compression.parameters.method=quantize", "zero_optimization.stage=3"}, more);
}

TEST(CompressionConfig, QuantizedWeightsAreReadAndWritten) {
  EXPECT_FALSE(read({}, 2).weight_compression.enabled);
  const RunConfig config =
      read(quantized_weights({"compression.parameters.bits=4", "compression.parameters.block=64",
                              "compression.parameters.min_bytes=9"}),
           2);
  const WeightCompressionConfig& weights = config.weight_compression;
  EXPECT_TRUE(weights.enabled);
  EXPECT_EQ(weights.bits, 4);
  EXPECT_EQ(weights.block, 64);
  EXPECT_EQ(weights.min_bytes, 9);
  EXPECT_TRUE(config.notes.empty());
  EXPECT_FALSE(config.compression.enabled);
  const Json json = run_config_to_json(config);
  EXPECT_EQ(run_config_to_json(read_run_config(json, 2)), json);
  EXPECT_NE(trajectory_hash(config), trajectory_hash(read(quantized_weights(), 2)));
  EXPECT_NE(trajectory_hash(read(quantized_weights(), 2)), trajectory_hash(read({}, 2)));
  EXPECT_EQ(trajectory_hash(read({"compression.parameters.method=none"}, 2)),
            trajectory_hash(read({}, 2)));
}

TEST(CompressionConfig, RefusesWhatDoesNotFitQuantizedWeights) {
  EXPECT_EQ(refusal({"compression.parameters.bits=4"}),
            "compression.parameters.bits: needs compression.parameters.method quantize");
  EXPECT_EQ(refusal(quantized_weights({"compression.parameters.bits=1"})),
            "compression.parameters.bits: is 1, expected 8 or 4");
  EXPECT_EQ(refusal(quantized_weights({"compression.parameters.block=12"})),
            "compression.parameters.block: is 12, expected a multiple of 8");
  EXPECT_EQ(refusal({"compression.parameters.method=quantize", "zero_optimization.stage=2"}),
            "compression.parameters.method: needs zero_optimization.stage 3, which gathers weights "
            "in every step, got 2");
  EXPECT_NE(refusal({"compression.parameters.method=top_k", "zero_optimization.stage=3"}), "");
}

TEST(CompressionConfig, DeepSpeedNamesQuantizedWeights) {
  const std::vector<std::string> names{"zero_optimization.zero_quantized_weights=true",
                                       "zero_optimization.stage=3"};
  EXPECT_EQ(run_config_to_json(read(names, 2)), run_config_to_json(read(quantized_weights(), 2)));
  EXPECT_EQ(read(joined(names, {"compression.parameters.bits=4"}), 2).weight_compression.bits, 4);
  EXPECT_EQ(refusal({names[0]}),
            "zero_optimization.zero_quantized_weights: needs zero_optimization.stage 3, which "
            "gathers weights in every step, got 0");
  EXPECT_EQ(refusal(joined(names, {"compression.parameters.method=none"})),
            "zero_optimization.zero_quantized_weights: contradicts compression.parameters.method "
            "none");
  const std::string off = "zero_optimization.zero_quantized_weights=false";
  EXPECT_EQ(refusal(quantized_weights({off})),
            "zero_optimization.zero_quantized_weights: contradicts compression.parameters.method "
            "quantize");
  EXPECT_EQ(run_config_to_json(read(joined({"compression.parameters.method=none"}, {off}), 2)),
            run_config_to_json(read({off}, 2)));
}

}  // namespace
}  // namespace trireme::test_compression
