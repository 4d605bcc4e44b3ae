#include "transformer/formats/gguf/gguf_model.h"

#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/io/input_file.h"
#include "transformer/families/config_json.h"
#include "transformer/families/family.h"
#include "transformer/formats/gguf/gguf_architectures.h"

namespace trireme {
namespace {

// GGUF name of a module in a layer; "": unknown module. `expert` and `part` are set for modules
// that share a tensor.
struct LayerName {
  std::string name;
  int64_t expert = -1;  // index in a stack of experts
  int64_t part = -1;    // q, k or v of one fused matrix
};

LayerName layer_name(const ParameterNames& names, bool one_qkv, const std::string& module) {
  const auto in = [&](const char* outer, const char* inner) {
    return module == concat(outer, ".", inner);
  };
  if (module == names.attention_norm) return {"attn_norm"};
  if (module == names.mlp_norm) return {"ffn_norm"};
  const char* const kProjections[] = {"q_proj", "k_proj", "v_proj"};
  const char* const kShort[] = {"attn_q", "attn_k", "attn_v"};
  for (size_t p = 0; p < 3; ++p)
    if (in(names.attention, kProjections[p]))
      return one_qkv ? LayerName{"attn_qkv", -1, static_cast<int64_t>(p)} : LayerName{kShort[p]};
  if (in(names.attention, names.attention_output)) return {"attn_output"};
  if (in(names.attention, "q_norm")) return {"attn_q_norm"};
  if (in(names.attention, "k_norm")) return {"attn_k_norm"};
  const std::pair<const char*, const char*> kMlp[] = {
      {names.mlp_gate, "ffn_gate"}, {names.mlp_up, "ffn_up"}, {names.mlp_down, "ffn_down"}};
  for (const auto& [ours, theirs] : kMlp)
    if (in(names.mlp, ours)) return {theirs};
  if (module == names.attention_post_norm) return {"post_attention_norm"};
  if (module == names.mlp_post_norm) return {"post_ffw_norm"};
  if (in(names.experts, "gate")) return {"ffn_gate_inp"};
  const std::string shared = concat(names.experts, ".", names.shared_expert);
  if (module == shared + "_gate") return {"ffn_gate_inp_shexp"};
  const std::pair<const char*, const char*> kShared[] = {{names.mlp_gate, "ffn_gate_shexp"},
                                                         {names.mlp_up, "ffn_up_shexp"},
                                                         {names.mlp_down, "ffn_down_shexp"}};
  for (const auto& [ours, theirs] : kShared)
    if (in(shared.c_str(), ours)) return {theirs};
  const std::string experts = concat(names.experts, ".experts.");
  if (!module.starts_with(experts)) return {};
  int64_t expert = -1;
  const char* const begin = module.data() + experts.size();
  const auto [end, error] = std::from_chars(begin, module.data() + module.size(), expert);
  if (error != std::errc() || *end != '.') return {};
  const std::string inner(end + 1, module.data() + module.size());
  const std::pair<const char*, const char*> kExperts[] = {{names.expert_gate, "ffn_gate_exps"},
                                                          {names.expert_up, "ffn_up_exps"},
                                                          {names.expert_down, "ffn_down_exps"}};
  for (const auto& [ours, theirs] : kExperts)
    if (inner == ours) return {theirs, expert};
  return {};
}

[[noreturn]] void fail_place(const ModelConfig& config, const std::string& parameter) {
  fail_input("GGUF files have no name for ", parameter, " of model_type \"",
             family_of(config.family).model_type, "\" that this version knows");
}

}  // namespace

ParameterMapping gguf_place(const ModelConfig& config, const std::string& parameter) {
  const ParameterNames& names = parameter_names(config);
  const size_t dot = parameter.rfind('.');
  const std::string base = parameter.substr(0, dot), suffix = parameter.substr(dot);
  ParameterMapping place;
  if (base == names.token_embedding) place.tensor = "token_embd" + suffix;
  if (base == names.position_embedding) place.tensor = "position_embd" + suffix;
  if (base == names.final_norm) {
    place.tensor = "output_norm" + suffix;
    place.added = config.zero_centered_gamma ? 1 : 0;
  }
  if (base == names.head) place.tensor = "output" + suffix;
  if (!place.tensor.empty()) return place;
  const std::string layers = concat(names.layers, ".");
  const size_t after = base.find('.', layers.size());
  if (!base.starts_with(layers) || after == std::string::npos) fail_place(config, parameter);
  const std::string layer = base.substr(layers.size(), after - layers.size());
  const GgufArchitecture* const row = gguf_architecture(config.family);
  if (row == nullptr) fail_place(config, parameter);
  const LayerName found = layer_name(names, row->gpt2_layout, base.substr(after + 1));
  if (found.name.empty()) fail_place(config, parameter);
  place.tensor = concat("blk.", layer, ".", found.name, suffix);
  if (config.zero_centered_gamma && found.name.ends_with("_norm")) place.added = 1;
  if (found.part >= 0) place.first_row = found.part * config.hidden_size;
  if (found.expert >= 0)
    place.first_row = found.expert * (found.name == "ffn_down_exps" ? config.hidden_size
                                                                    : config.moe.intermediate_size);
  if (row->adjacent_pairs && (found.name == "attn_q" || found.name == "attn_k"))
    place.rotary_width = config.head_dim;
  return place;
}

bool is_gguf(const std::string& path) {
  std::error_code ignored;
  return path.ends_with(".gguf") && !std::filesystem::is_directory(path, ignored) &&
         is_input_file(path);
}

GgufModel::GgufModel(const std::string& path) : ModelSource(path) {
  auto file = std::make_unique<GgufFile>(path);
  ConfigReport report;
  config_ = read_model_config(gguf_config(*file), "", report);
  report.throw_if_errors(concat(path, ", as a HuggingFace config.json"));
  tensors_ = std::move(file);
}

std::string GgufModel::tokenizer() const {
  const auto& file = static_cast<const GgufFile&>(tensors());
  for (const char* key : {"tokenizer.ggml.model", "tokenizer.huggingface.json"})
    if (file.metadata().contains(key)) return path();
  return "";
}

ParameterMapping GgufModel::place(const ModelConfig& config, const std::string& parameter) const {
  return gguf_place(config, parameter);
}

// gguf_config() has read the factors.
bool GgufModel::is_ignored(const ModelConfig&, const std::string& tensor) const {
  return tensor == "rope_freqs.weight";
}

std::string GgufModel::types_read() const {
  return "supported: F32, F16, BF16, Q8_0, Q4_0, Q4_K, Q6_K; make such a file from the original "
         "with llama-quantize, or use the HuggingFace directory of this model";
}

}  // namespace trireme
