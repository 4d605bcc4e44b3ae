// Phi-3 and Phi-4 (Abdin et al. 2024, arXiv 2404.14219): Llama's block whose files hold q, k and v
// in one tensor, and gate and up-projection, with longrope and, in Phi-4-mini, rotary positions on
// a part of each head.
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "transformer/families/common_keys.h"
#include "transformer/families/rope_keys.h"
#include "transformer/families/table.h"
#include "transformer/families/window_keys.h"

namespace trireme {
namespace {

constexpr const char* kOriginalLength = "original_max_position_embeddings";

void add_phi3_keys(Schema& schema) {
  add_llama_keys(schema, {.positions = "4096",
                          .norm_eps = "1e-05",
                          .eos = "32000",
                          .vocab = "32064",
                          .heads = "32",
                          .rotary_factor = "1"});
  schema.integer(kOriginalLength, "4096", "longrope: context length of the original training")
      .at_least(1)
      .at_most(kMaxPositions);
  add_window_key(schema, "null");
  schema.number("resid_pdrop", "0", "dropout of attention and MLP before the residual add")
      .at_least(0)
      .below(1);
  schema.unavailable("lm_head_bias", {"false"}, "a bias of the head");
  schema.unavailable("full_attn_mod", {"1"}, "layers with other attention");
  schema.unavailable("interpolate_factor", {"1"}, "interpolated positions");
}

void read_phi3(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  read_decoder_keys(values, config, report);
  read_head_dim(values, config, report);
  read_rope_keys(values, config, report, values.integer(kOriginalLength));
  read_window_key(values, config, report);
  config.residual_dropout = values.number("resid_pdrop");
  const RopeType type = config.rope_scaling.type;
  if (type != RopeType::kDefault && type != RopeType::kLongRope)
    report.error(values.spelled(values.given("rope_scaling.rope_type") ? "rope_scaling.rope_type"
                                                                       : "rope_scaling.type"),
                 "is not default or longrope, the types of this family");
}

void write_phi3(const ModelConfig& config, Json& json) {
  write_llama_keys(config, json);
  write_window_key(config, json);
  json["resid_pdrop"] = config.residual_dropout;
  if (config.rope_scaling.type == RopeType::kLongRope)
    json[kOriginalLength] = config.rope_scaling.original_positions;
}

}  // namespace

constinit const Family kPhi3Family = {
    .id = ModelFamily::kPhi3,
    .model_type = "phi3",
    .architecture = "Phi3ForCausalLM",
    .title = "Phi-3 style model: longrope",
    .models = "Phi-3, 3.5, Phi-4, Phi-4-mini",
    .special =
        "`longrope`; rotary positions on a part of each head in Phi-4-mini; files with q, k and v "
        "in one tensor",
    .refused = "experts (`phimoe`), images",
    .positions_key = "max_position_embeddings",
    .names = {},
    .fused_gate_up = true,
    .fused_qkv = true,
    .add_keys = add_phi3_keys,
    .read = read_phi3,
    .write = write_phi3};

}  // namespace trireme
