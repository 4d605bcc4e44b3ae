// gpt-oss (OpenAI 2025, arXiv 2508.10925): attention sinks, windows in every other layer, biases
// everywhere, experts of limited SwiGLU whose tensors are stacked.
#include <nlohmann/json.hpp>

#include "transformer/families/common_keys.h"
#include "transformer/families/expert_keys.h"
#include "transformer/families/rope_keys.h"
#include "transformer/families/table.h"
#include "transformer/families/window_keys.h"

namespace trireme {
namespace {

constexpr int64_t kFullInterval = 2;  // of layers with full attention
constexpr const char *kSlope = "swiglu_alpha", *kLimit = "swiglu_limit";

constexpr ExpertKeys kGptOssExperts{.experts = "num_local_experts",
                                    .experts_default = "128",
                                    .per_token_default = "4",
                                    .balance = "router_aux_loss_coef",
                                    .mixed = false};

// Scaling of positions in transformers where the file has no object for it.
constexpr double kFactor = 32;
constexpr int64_t kOriginalPositions = 4096;

void add_gpt_oss_keys(Schema& schema) {
  add_llama_keys(schema, {.positions = "131072",
                          .rope_theta = "150000",
                          .norm_eps = "1e-05",
                          .bos = "null",
                          .eos = "null",
                          .kv_heads = "8",
                          .head_dim = "64",
                          .vocab = "201088",
                          .heads = "64"});
  schema.boolean("attention_bias", true, "biases of the q, k, v and o projections");
  add_listed_window_keys(schema, "128");
  schema
      .number(
          kLimit, "7",
          "limit of an expert's operands: of the gate from above, of the up projection from both "
          "sides")
      .above(0);
  schema.number(kSlope, "1.702", "a of the experts' gate x sigmoid(a x)").above(0);
  add_expert_keys(schema, kGptOssExperts);
  add_routing_keys(schema);
  // Copies of num_experts_per_tok and of rope_scaling.original_max_position_embeddings.
  for (const char* key : {"experts_per_token", "initial_context_length"}) schema.ignored(key);
}

void read_gpt_oss(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  read_llama_keys(values, config, report);
  if (!gives_rope_object(values)) {
    config.rope_scaling = {.type = RopeType::kYarn,
                           .factor = kFactor,
                           .original_positions = kOriginalPositions,
                           .truncate = false};
    check_yarn_base(values, config, report);
  }
  read_attention_bias(values, config);
  read_listed_window_keys(values, kFullInterval, config, report);
  config.attention_sinks = true;
  config.clamped_gate = ClampedGate{.limit = values.number(kLimit), .slope = values.number(kSlope)};
  config.moe = read_expert_keys(values, kGptOssExperts);
  config.moe.expert_bias = config.moe.router_bias = true;
  read_routing_keys(values, kGptOssExperts, config.moe, report);
}

void write_gpt_oss(const ModelConfig& config, Json& json) {
  write_llama_keys(config, json);
  if (config.rope_scaling.type == RopeType::kDefault)
    json["rope_scaling"] = {{"rope_type", "default"}};
  json["attention_bias"] = config.attention_bias;
  write_listed_window_keys(config, json);
  const ClampedGate gate = config.clamped_gate.value_or(ClampedGate{});
  json[kLimit] = gate.limit;
  json[kSlope] = gate.slope;
  write_expert_keys(config.moe, kGptOssExperts, json);
  write_routing_keys(config.moe, json);
}

}  // namespace

constinit const Family kGptOssFamily = {
    .id = ModelFamily::kGptOss,
    .model_type = "gpt_oss",
    .architecture = "GptOssForCausalLM",
    .title = "gpt-oss style model: attention sinks, biased experts of limited SwiGLU",
    .models = "gpt-oss 20B, 120B",
    .special =
        "attention sinks; windows in every other layer; biases of all projections, of the router "
        "and "
        "of the experts, whose SwiGLU is limited; MXFP4 files are read",
    .positions_key = "max_position_embeddings",
    .names = {.router = "router", .selection_bias = "router.e_score_correction_bias"},
    .stacked_experts = {.gate_up = "experts.gate_up_proj",
                        .down = "experts.down_proj",
                        .bias_suffix = "_bias",
                        .transposed = true,
                        .interleaved = true},
    .layer_types = true,
    .add_keys = add_gpt_oss_keys,
    .read = read_gpt_oss,
    .write = write_gpt_oss};

}  // namespace trireme
