// Hunyuan, dense (Tencent 2025): Llama's block with norms of the heads of q and k after their
// rotation, whose base `alpha` enlarges.
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "transformer/families/common_keys.h"
#include "transformer/families/table.h"

namespace trireme {
namespace {

constexpr const char* kAlpha = "rope_scaling.alpha";

void add_hunyuan_dense_keys(Schema& schema) {
  add_llama_keys(schema, {.norm_eps = "1e-05", .vocab = "290943", .heads = "32"});
  add_attention_bias(schema);
  schema
      .number(kAlpha, "null",
              "with rope_type dynamic: the base is rope_theta times alpha^(D / (D - 2)) for all "
              "lengths, D the width of a head; it is written so")
      .or_null()
      .above(0)
      .alias({"rope_parameters.alpha"});
  schema.unavailable("use_cla", {"false"}, "keys and values shared with other layers");
  schema.unavailable("use_rotary_pos_emb", {"true"}, "a model without rotary positions");
  schema.unavailable("add_classification_head", {"false"}, "another head");
  // A copy of head_dim, and properties of what is refused above or of other parts.
  for (const char* key : {"attention_head_dim", "cla_share_factor", "org_vocab_size", "dense_list",
                          "class_num", "num_media_embeds", "pool_type"})
    schema.ignored(key);
}

void read_hunyuan_dense(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  read_llama_keys(values, config, report);
  read_attention_bias(values, config);
  config.qk_norm_after_rope = true;
  if (!values.given(kAlpha)) return;
  if (config.rope_scaling.type != RopeType::kDynamic) {
    report.note(values.spelled(kAlpha), "is read by rope_type dynamic only");
    return;
  }
  const auto width = static_cast<double>(config.head_dim);
  if (config.head_dim > 2)
    config.rope_theta *= std::pow(values.number(kAlpha), width / (width - 2));
  if (!std::isfinite(config.rope_theta))
    report.error(values.spelled(kAlpha),
                 concat(values.number(kAlpha), " makes the base of the frequencies infinite"));
  config.rope_scaling = {};
}

void write_hunyuan_dense(const ModelConfig& config, Json& json) {
  write_llama_keys(config, json);
  json["attention_bias"] = config.attention_bias;
}

}  // namespace

constinit const Family kHunyuanDenseFamily = {
    .id = ModelFamily::kHunyuanDense,
    .model_type = "hunyuan_v1_dense",
    .architecture = "HunYuanDenseV1ForCausalLM",
    .title = "Hunyuan style model, dense: normalized q and k after their rotation",
    .models = "Hunyuan 0.5B to 7B, Hunyuan-MT",
    .special = "normalized heads of q and k, after their rotation; a base enlarged by `alpha`",
    .refused = "experts (`hunyuan_v1_moe`)",
    .positions_key = "max_position_embeddings",
    .names = {.q_norm = "query_layernorm", .k_norm = "key_layernorm"},
    .qk_norm = true,
    .add_keys = add_hunyuan_dense_keys,
    .read = read_hunyuan_dense,
    .write = write_hunyuan_dense};

}  // namespace trireme
