#include "transformer/formats/hf/hf_source.h"

#include "engine/core/error.h"
#include "transformer/families/family.h"

namespace trireme {
namespace {

// GPT-2 stores query, key and value in one matrix, and the linear layers of its blocks as (in,
// out).
HfSource gpt2_source(const ModelConfig& config, const std::string& parameter) {
  if (parameter.find(".h.") == std::string::npos) return {parameter};
  const bool matrix = parameter.ends_with(".weight") && parameter.find(".ln_") == std::string::npos;
  const char* const kParts[] = {".q_proj", ".k_proj", ".v_proj"};
  for (int64_t p = 0; p < 3; ++p) {
    const std::string part = kParts[p];
    const size_t at = parameter.find(part);
    if (at == std::string::npos) continue;
    std::string fused = parameter;
    fused.replace(at, part.size(), ".c_attn");
    return {fused, matrix, p * config.hidden_size};
  }
  return {parameter, matrix};
}

}  // namespace

HfSource hf_source(const ModelConfig& config, const std::string& parameter) {
  if (family_of(config.family).conv1d) return gpt2_source(config, parameter);
  return {parameter};
}

bool hf_tensor_is_ignored(const ModelConfig& config, const std::string& tensor) {
  for (const char* end : {".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias"})
    if (tensor.ends_with(end)) return true;
  for (int64_t l = config.num_layers; l < config.num_layers + config.extra_layers; ++l)
    if (tensor.starts_with(concat("model.layers.", l, "."))) return true;
  return false;
}

}  // namespace trireme
