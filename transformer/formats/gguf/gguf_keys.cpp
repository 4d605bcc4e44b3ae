#include "transformer/formats/gguf/gguf_keys.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "transformer/families/family.h"
#include "transformer/formats/gguf/gguf_architectures.h"

namespace trireme {
namespace {

template <size_t n>
void add_words(Schema& schema, const GgufKeyPair (&words)[n], bool whole) {
  for (const GgufKeyPair& word : words) {
    const std::string help = concat(word.ours, " of config.json");
    Key& key = whole ? schema.integer(word.theirs, "", help) : schema.number(word.theirs, "", help);
    if (word.required) key.required();
  }
}

void add_rope(Schema& schema) {
  schema.any("rope.dimension_count", "", "integer", "elements of a head that turn: all of them");
  schema.choice("rope.scaling.type", "linear", {"none", "linear", "yarn"},
                "rope_type of config.json; where only a factor is given: linear");
  schema.number("rope.scaling.factor", "", "factor of rope_scaling; 0: none").at_least(0);
  schema.number("rope.scale_linear", "", "the older name of a linear factor; 0: none").at_least(0);
  schema.integer("rope.scaling.original_context_length", "",
                 "original_max_position_embeddings of rope_scaling");
  schema.number("rope.scaling.yarn_beta_fast", "", "beta_fast of rope_scaling");
  schema.number("rope.scaling.yarn_beta_slow", "", "beta_slow of rope_scaling");
  schema.ignored("rope.scaling.finetuned");
  for (const char* key : {"rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor",
                          "rope.scaling.yarn_ext_factor"})
    schema.unavailable(key, {"1"}, "yarn with factors of its own");
  schema.unavailable("rope.scaling.yarn_log_multiplier", {"0"}, "yarn with factors of its own");
  schema.unavailable("rope.dimension_sections", {}, "rotary positions in several dimensions");
}

// llama.cpp applies these in some architectures; for numbers 0 means off.
void add_other_mathematics(Schema& schema) {
  for (const char* key :
       {"attention.scale", "attention.clamp_kqv", "attention.max_alibi_bias",
        "attention.temperature_scale", "attention.temperature_length", "attn_logit_softcapping",
        "final_logit_softcapping", "router_logit_softcapping", "attention.shared_kv_layers"})
    schema.unavailable(key, {"0"}, "other attention or capped logits");
  for (const char* key : {"logit_scale", "embedding_scale", "residual_scale"})
    schema.unavailable(key, {"0", "1"}, "scaled activations");
  schema.unavailable("attention.causal", {"true"}, "attention to later tokens");
  schema.unavailable("use_parallel_residual", {"false"}, "attention and MLP side by side");
  for (const char* key : {"leading_dense_block_count", "expert_shared_count",
                          "nextn_predict_layers", "expert_group_count", "expert_group_used_count"})
    schema.unavailable(key, {"0"}, "experts of another kind");
  schema.unavailable("moe_every_n_layers", {"0", "1"}, "experts in some layers");
  schema.unavailable("interleave_moe_layer_step", {"0", "1"}, "experts in some layers");
  schema.unavailable("expert_weights_scale", {"0", "1"}, "scaled weights of experts");
  schema.unavailable("tensor_data_layout", {"\"reference\"", "\"Meta AI original pth\""},
                     "rows in another order");
}

// Whether a row with this name of an architecture has the property.
template <class Property>
bool any_row(const std::string& architecture, const Property& property) {
  return std::ranges::any_of(kGgufArchitectures, [&](const GgufArchitecture& row) {
    return architecture == row.name && property(row);
  });
}

void add_experts(Schema& schema, const std::string& architecture) {
  const bool some =
      any_row(architecture, [](const auto& row) { return !row.experts.words.empty(); });
  const bool plain = any_row(architecture, [](const auto& row) {
    return !row.experts.words.empty() && !row.experts.normalized;
  });
  for (const char* key : {"expert_count", "expert_used_count"}) {
    if (some)
      schema.integer(key, "", "experts of a layer, and experts per token");
    else
      schema.unavailable(key, {"0"}, "mixture of experts in a dense architecture");
  }
  schema.unavailable("expert_gating_func", {"0", "1"}, "other scores than softmax's");
  for (const char* key : {"expert_feed_forward_length", "expert_shared_feed_forward_length"})
    schema.ignored(key);  // rows of the tensors
  schema.unavailable("expert_weights_norm", {text(!plain)},
                     "weights of experts that are (not) divided by their sum");
}

Schema made(const std::string& architecture) {
  Schema schema(concat("GGUF metadata of ", architecture));
  const bool gpt2 = any_row(architecture, [](const auto& row) { return row.gpt2_layout; });
  if (gpt2) {
    add_words(schema, kGpt2Integers, true);
    add_words(schema, kGpt2Numbers, false);
    schema.any("attention.head_count_kv", "", "integer", "as many as heads");
  } else {
    add_words(schema, kDecoderIntegers, true);
    add_words(schema, kDecoderNumbers, false);
    schema.integer("attention.value_length", "", "as attention.key_length");
    add_rope(schema);
    if (any_row(architecture, [](const auto& row) { return row.gemma_attention; }))
      schema.number("rope.freq_base_swa", "10000", "rope_local_base_freq of config.json");
    schema.integer("attention.sliding_window", "", "sliding_window of config.json; 0: none");
    schema.any(
        "attention.sliding_window_pattern", "", "integer or list",
        "interval of layers with full attention, or for each layer whether it has the window");
  }
  add_experts(schema, architecture);
  add_other_mathematics(schema);
  schema.ignored("vocab_size");  // rows of the embedding
  schema.no_effect("pooling_type", "a pooled vector is what the request asks for");
  schema.finish();
  return schema;
}

Json json_of(const GgufValue& value) {
  return std::visit([](const auto& v) { return Json(v); }, value);
}

}  // namespace

const Schema& gguf_schema(const std::string& architecture) {
  static const std::map<std::string, Schema> schemas = [] {
    std::map<std::string, Schema> out;
    for (const GgufArchitecture& a : kGgufArchitectures)
      if (!out.contains(a.name)) out.emplace(a.name, made(a.name));
    return out;
  }();
  return schemas.at(architecture);
}

void check_gguf_keys(const GgufFile& file, const std::string& architecture) {
  const Schema& schema = gguf_schema(architecture);
  const std::string prefix = architecture + ".";
  ConfigReport report;
  Json known = Json::object();
  for (const auto& [name, value] : file.metadata()) {
    if (!name.starts_with(prefix)) continue;
    const std::string key = name.substr(prefix.size());
    if (schema.find(key) == nullptr) {
      report.error(
          shown(Json(name)),
          concat("unknown key (value ", shown(json_of(value)),
                 "), which may change the model's output (docs/reference/model-keys.md lists the "
                 "known keys); use the HuggingFace directory of this model"));
      if (report.errors().size() >= 20) break;
      continue;
    }
    value_at(known, key) = json_of(value);
  }
  read_config(schema, known, architecture, report);
  report.throw_if_errors(file.path());
}

}  // namespace trireme
