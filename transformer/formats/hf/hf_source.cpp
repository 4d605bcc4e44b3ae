#include "transformer/formats/hf/hf_source.h"

#include <charconv>

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

struct FusedPart {
  const char* part;   // of the parameter's name
  const char* fused;  // in the tensor's name
  int64_t first_row;
};

// Layers whose rows files hold one after the other.
std::vector<FusedPart> fused_parts(const ModelConfig& config) {
  const Family& family = family_of(config.family);
  const int64_t q = config.num_heads * config.head_dim, kv = config.num_kv_heads * config.head_dim;
  std::vector<FusedPart> parts;
  if (family.fused_gate_up)
    parts = {{".gate_proj.", ".gate_up_proj.", 0},
             {".up_proj.", ".gate_up_proj.", config.intermediate_size}};
  if (family.fused_qkv)
    parts.insert(parts.end(), {{".q_proj.", ".qkv_proj.", 0},
                               {".k_proj.", ".qkv_proj.", q},
                               {".v_proj.", ".qkv_proj.", q + kv}});
  return parts;
}

// Experts of a layer in tensors of all of them.
HfSource stacked_source(const ModelConfig& config, const std::string& parameter) {
  const StackedExperts& stacked = family_of(config.family).stacked_experts;
  const ParameterNames& names = parameter_names(config);
  constexpr std::string_view kExperts = "experts.";
  const size_t at = parameter.find(concat(".", kExperts));
  if (at == std::string::npos) return {parameter};
  int64_t expert = 0;
  const char* const end = parameter.data() + parameter.size();
  const char* const dot =
      std::from_chars(parameter.data() + at + 1 + kExperts.size(), end, expert).ptr;
  const std::string part(dot, end);  // ".gate_proj.weight"
  const auto is = [&](const char* name) { return part.starts_with(concat(".", name, ".")); };
  const bool gate = is(names.expert_gate), up = is(names.expert_up), bias = part.ends_with(".bias");
  TRIREME_CHECK(gate || up || is(names.expert_down), "expert's ", parameter);
  HfSource source{
      .tensor = concat(parameter.substr(0, at + 1), gate || up ? stacked.gate_up : stacked.down,
                       bias ? stacked.bias_suffix : ""),
      .transposed = stacked.transposed || bias,
      .matrices = config.moe.experts,
      .matrix = expert};
  if (gate || up) {
    source.row_step = stacked.interleaved ? 2 : 1;
    source.first_row = !up ? 0 : stacked.interleaved ? 1 : config.moe.intermediate_size;
  }
  return source;
}

}  // namespace

HfSource hf_source(const ModelConfig& config, const std::string& parameter) {
  const Family& family = family_of(config.family);
  if (family.conv1d) return gpt2_source(config, parameter);
  if (*family.stacked_experts.gate_up != 0) return stacked_source(config, parameter);
  for (const FusedPart& part : fused_parts(config))
    if (const size_t at = parameter.find(part.part); at != std::string::npos)
      return {std::string(parameter).replace(at, std::string_view(part.part).size(), part.fused),
              false, part.first_row};
  return {parameter};
}

int64_t mtp_layer_of(const ModelConfig& config, const std::string& tensor) {
  constexpr std::string_view kLayers = "model.layers.";
  if (config.extra_layers == 0 || !tensor.starts_with(kLayers)) return -1;
  int64_t layer = -1;
  const char* const end = tensor.data() + tensor.size();
  const auto [rest, error] = std::from_chars(tensor.data() + kLayers.size(), end, layer);
  if (error != std::errc() || rest == end || *rest != '.' || layer < config.num_layers) return -1;
  return layer - config.num_layers < config.extra_layers ? layer - config.num_layers : -1;
}

bool hf_tensor_is_ignored(const ModelConfig& config, const std::string& tensor) {
  for (const char* end : {".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias"})
    if (tensor.ends_with(end)) return true;
  return mtp_layer_of(config, tensor) >= 0;
}

}  // namespace trireme
