// Keys of config.json that several families have: those of all, and those of Llama and its
// descendants.
#pragma once

#include <string>

#include "engine/config/reader.h"
#include "engine/config/schema.h"
#include "transformer/config/model_config.h"

namespace trireme {

// Bounds that keep every product of two sizes and the layer count far inside int64.
inline constexpr double kMaxVocab = 2147483647;
inline constexpr double kMaxWidth = 1 << 20;
inline constexpr double kMaxLayers = 1 << 16;
inline constexpr double kMaxPositions = 1 << 30;

// Of all families: the vocabulary and the initialisation. Keys that have no meaning for the
// mathematics, or that of other architectures: transformer/families/foreign_keys.h.
void add_common_keys(Schema& schema, const char* vocab_default = "");  // "": required

// What transformers takes for keys that are absent.
struct LlamaDefaults {
  const char* positions = "2048";
  const char* rope_theta = "10000";
  const char* norm_eps = "1e-06";
  const char* bos = "1";
  const char* eos = "2";
  const char* kv_heads = "null";
  const char* head_dim = "null";
  const char* vocab = "";  // "": required, as are heads
  const char* heads = "";
  bool tied = false;
};
// Sizes, numbers of heads, RMSNorm; common keys included.
void add_decoder_keys(Schema& schema, const LlamaDefaults& preset);
void read_decoder_keys(const ConfigValues& values, ModelConfig& config, ConfigReport& report);
void write_decoder_keys(const ModelConfig& config, Json& json);
// "hidden_act", which is silu.
void add_silu_gate(Schema& schema);
// "head_dim"; read_ also checks it.
void add_head_dim(Schema& schema, const char* preset);
void read_head_dim(const ConfigValues& values, ModelConfig& config, ConfigReport& report);
// All of these and rotary positions (transformer/families/rope_keys.h).
void add_llama_keys(Schema& schema, const LlamaDefaults& preset);
void read_llama_keys(const ConfigValues& values, ModelConfig& config, ConfigReport& report);
void write_llama_keys(const ModelConfig& config, Json& json);

// "attention_bias": biases of q, k, v and o.
void add_attention_bias(Schema& schema);
void read_attention_bias(const ConfigValues& values, ModelConfig& config);

// An error unless `divisor` (key `small`) divides `dividend` (key `large`). Returns whether it
// does; a divisor of 0 has been reported already.
bool check_divides(const ConfigValues& values, const std::string& small, int64_t divisor,
                   const std::string& large, int64_t dividend, ConfigReport& report);

}  // namespace trireme
