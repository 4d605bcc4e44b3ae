// Keys of config.json that several families share: those of all families, and those of Llama and
// its descendants.
#pragma once

#include <string>

#include "engine/config/reader.h"
#include "engine/config/schema.h"
#include "transformer/config/model_config.h"

namespace trireme {

// Bounds that keep vocabulary x width and width x width x layers far below the limit of int64.
inline constexpr double kMaxVocab = 2147483647;
inline constexpr double kMaxWidth = 1 << 20;
inline constexpr double kMaxLayers = 1 << 16;
inline constexpr double kMaxPositions = 1 << 30;

// Keys of all families: vocabulary and initialization. Keys without effect on results, and those of
// other architectures: transformer/families/foreign_keys.h.
void add_common_keys(Schema& schema, const char* vocab_default = "");  // "": required

// transformers' default values of absent keys, as JSON.
struct LlamaDefaults {
  const char* positions = "2048";
  const char* rope_theta = "10000";
  const char* norm_eps = "1e-06";
  const char* bos = "1";
  const char* eos = "2";
  const char* kv_heads = "null";
  const char* head_dim = "null";
  const char* vocab = "";  // "": required, like heads
  const char* heads = "";
  const char* attention_dropout = "0";
  const char* rotary_factor = "";  // RopeDefaults
  bool tied = false;
};
// Sizes, numbers of heads, RMSNorm, attention dropout, tied head and token ids; includes the common
// keys.
void add_decoder_keys(Schema& schema, const LlamaDefaults& preset);
void read_decoder_keys(const ConfigValues& values, ModelConfig& config, ConfigReport& report);
void write_decoder_keys(const ModelConfig& config, Json& json);
// "hidden_act": only silu is accepted.
void add_silu_gate(Schema& schema);
// "head_dim"; read_head_dim() also validates it.
void add_head_dim(Schema& schema, const char* preset);
void read_head_dim(const ConfigValues& values, ModelConfig& config, ConfigReport& report);
// All of the above and the rotary embedding (transformer/families/rope_keys.h).
void add_llama_keys(Schema& schema, const LlamaDefaults& preset);
void read_llama_keys(const ConfigValues& values, ModelConfig& config, ConfigReport& report);
void write_llama_keys(const ModelConfig& config, Json& json);

// "attention_bias": biases of q, k, v and o.
void add_attention_bias(Schema& schema);
void read_attention_bias(const ConfigValues& values, ModelConfig& config);
// "mlp_bias": biases of the gated MLP.
void add_mlp_bias(Schema& schema);

// Reports an error unless `divisor` (key `small`) divides `dividend` (key `large`). Returns whether
// it divides; true for a divisor of 0, which the caller must have reported.
bool check_divides(const ConfigValues& values, const std::string& small, int64_t divisor,
                   const std::string& large, int64_t dividend, ConfigReport& report);

}  // namespace trireme
