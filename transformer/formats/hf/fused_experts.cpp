#include "transformer/formats/hf/fused_experts.h"

#include <algorithm>
#include <charconv>

#include "engine/core/error.h"
#include "transformer/families/family.h"

namespace trireme {
namespace {

constexpr std::string_view kModule = ".mlp.", kGateUp = "experts.gate_up_proj",
                           kDown = "experts.down_proj";

}  // namespace

bool has_fused_experts(const TensorSource& tensors) {
  return std::ranges::any_of(tensors.tensors(), [](const SourceTensor& t) {
    return t.name.ends_with(concat(kModule, kGateUp));
  });
}

HfSource fused_expert_source(const ModelConfig& config, const std::string& parameter,
                             HfSource source) {
  const ParameterNames& names = parameter_names(config);
  const std::string module = concat(".", names.experts, ".");
  const size_t at = parameter.find(module);
  if (config.moe.experts == 0 || !parameter.starts_with(concat(names.layers, ".")) ||
      at == std::string::npos)
    return source;
  const std::string before = concat(parameter.substr(0, at), kModule);
  const std::string inside = parameter.substr(at + module.size());
  constexpr std::string_view kExperts = "experts.";
  if (inside.starts_with("gate.") || inside == names.selection_bias) return {before + inside};
  if (!inside.starts_with(kExperts)) return source;
  int64_t expert = 0;
  const char* const end = inside.data() + inside.size();
  const char* const dot = std::from_chars(inside.data() + kExperts.size(), end, expert).ptr;
  const std::string part(dot, end);  // ".gate_proj.weight"
  const int64_t width = config.moe.intermediate_size;
  if (part == concat(".", names.expert_down, ".weight"))
    return {.tensor = concat(before, kDown), .first_row = expert * config.hidden_size};
  const bool up = part == concat(".", names.expert_up, ".weight");
  TRIREME_CHECK(up || part == concat(".", names.expert_gate, ".weight"), "expert's ", parameter);
  return {.tensor = concat(before, kGateUp), .first_row = (2 * expert + (up ? 1 : 0)) * width};
}

}  // namespace trireme
