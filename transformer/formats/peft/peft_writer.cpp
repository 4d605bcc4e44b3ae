// Writes adapters as PEFT's files (peft_adapter.h).
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "engine/config/json.h"
#include "engine/io/atomic_file.h"
#include "engine/io/safetensors.h"
#include "transformer/families/family.h"
#include "transformer/formats/peft/peft_adapter.h"
#include "transformer/formats/peft/peft_config.h"
#include "transformer/formats/peft/peft_layer.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFusedSource = "c_attn";

// Trireme keywords, which PEFT does not know or applies to other layers.
bool is_word(const std::string& target) { return target == "all-linear" || target == "attention"; }

// Name of a layer in PEFT's list of targets: our target where it is the same in PEFT, else the
// layer's last part, or its full name where our targets name single layers.
std::string target_of(const LoraConfig& lora, const std::string& layer) {
  bool dotted = !lora.pattern.empty();
  for (const std::string& target : lora.targets) {
    if (!is_word(target) && LoraConfig{.targets = {target}}.matches(layer)) return target;
    dotted |= target.find('.') != std::string::npos;
  }
  return dotted ? layer : layer.substr(layer.rfind('.') + 1);
}

// PEFT's names of the adapted layers.
std::vector<std::string> adapted_layers(const ModelConfig& config, const LoraConfig& lora) {
  std::vector<std::string> names;
  for (const ModelParameter& p : adapter_parameters(config, lora))
    if (const std::string name = peft_layer(config, p.name).name;
        names.empty() || names.back() != name)
      names.push_back(name);
  return names;
}

// A regular expression is kept where it also matches all of PEFT's names.
Json targets_json(const LoraConfig& lora, const std::vector<std::string>& layers) {
  if (!lora.pattern.empty() &&
      std::ranges::all_of(layers, [&](const std::string& name) { return lora.matches(name); }))
    return lora.pattern;
  std::vector<std::string> targets;
  for (const std::string& layer : layers)
    if (const std::string target = target_of(lora, layer);
        std::ranges::find(targets, target) == targets.end())
      targets.push_back(target);
  return targets;
}

// A tensor of PEFT's files, and its parts among ours.
struct WrittenAdapter {
  SafetensorsSpec spec;
  PeftLayer layer;                    // of the first adapted part
  std::vector<ModelParameter> parts;  // the adapted parts
};

std::vector<WrittenAdapter> written_tensors(const LoraConfig& lora, const ModelConfig& config,
                                            const ModelSource& adapters) {
  std::vector<WrittenAdapter> out;
  std::map<std::string, size_t> numbers;
  for (const ModelParameter& p : adapter_parameters(config, lora)) {
    const PeftLayer layer = peft_layer(config, p.name);
    const std::string name = layer.tensor();
    const auto [found, fresh] = numbers.try_emplace(name, out.size());
    if (fresh) {
      const SourceTensor* stored = adapters.tensors().find(adapters.place(config, p.name).tensor);
      if (stored == nullptr) fail_input(adapters.path(), ": has no tensor ", p.name);
      SafetensorsSpec spec{name, stored->dtype.value_or(DType::kF32), layer.shape(p, true)};
      out.push_back({std::move(spec), layer, {}});
    }
    out[found->second].parts.push_back(p);
  }
  for (const WrittenAdapter& w : out)
    if (lora.dora && std::ssize(w.parts) < w.layer.parts)
      fail_input("PEFT's format cannot store magnitudes of only a part of ", w.layer.name, ": ",
                 "query, key and value are one layer there; adapt all of them");
  return out;
}

// Stacks the rows of the parts; the parts of B are block-diagonal.
void write_tensor(SafetensorsWriter& writer, const ModelConfig& config, const ModelSource& adapters,
                  const WrittenAdapter& w) {
  const Shape shape{std::span<const int64_t>(w.spec.shape)};
  const int64_t element = dtype_size(w.spec.dtype);
  const Buffer all("adapter", shape.numel() * element);
  auto* const bytes = static_cast<std::byte*>(all.tensor(w.spec.dtype, shape).raw());
  std::fill_n(bytes, shape.numel() * element, std::byte{0});
  for (const ModelParameter& p : w.parts) {
    const int64_t part = peft_layer(config, p.name).part, rows = p.shape[0];
    const int64_t columns = p.shape.size() > 1 ? p.shape[1] : 1;
    const int64_t width = p.shape.size() > 1 ? w.spec.shape[1] : 1;
    const Buffer buffer("adapter's part", rows * columns * element);
    const Tensor values = buffer.tensor(w.spec.dtype, Shape{rows * columns});
    adapters.read(config, p, whole_box(p.shape), 0, values);
    const auto* const from = static_cast<const std::byte*>(values.raw());
    const int64_t first_column = width > columns ? part * columns : 0;
    for (int64_t r = 0; r < rows; ++r)
      std::copy_n(from + r * columns * element, columns * element,
                  bytes + ((part * rows + r) * width + first_column) * element);
  }
  writer.write(all.tensor(w.spec.dtype, shape));
}

Json config_json(const LoraConfig& lora, const ModelConfig& config, const std::string& base) {
  const std::vector<std::string> layers = adapted_layers(config, lora);
  Json ranks = Json::object(), alphas = Json::object();
  if (std::ranges::any_of(layers, [](const std::string& name) {
        return name.ends_with(concat(".", kFusedSource));
      })) {
    ranks[kFusedSource] = 3 * lora.rank;
    alphas[kFusedSource] = fused_alpha(lora);
  }
  return {{"peft_type", "LORA"},
          {"task_type", "CAUSAL_LM"},
          {"base_model_name_or_path", base},
          {"r", lora.rank},
          {"lora_alpha", lora.alpha},
          {"lora_dropout", lora.dropout},
          {"target_modules", targets_json(lora, layers)},
          {"rank_pattern", ranks},
          {"alpha_pattern", alphas},
          {"use_rslora", lora.rank_stabilized},
          {"use_dora", lora.dora},
          {"bias", "none"},
          {"fan_in_fan_out", family_of(config.family).conv1d},
          {"inference_mode", true}};
}

}  // namespace

void write_peft_adapter(const LoraConfig& lora, const ModelConfig& config,
                        const ModelSource& adapters, const std::string& base,
                        const std::string& directory) {
  const std::vector<WrittenAdapter> tensors = written_tensors(lora, config, adapters);
  std::vector<SafetensorsSpec> specs;
  specs.reserve(tensors.size());
  for (const WrittenAdapter& w : tensors) specs.push_back(w.spec);
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) fail_input("cannot create ", directory, ": ", error.message());
  SafetensorsWriter writer((fs::path(directory) / kPeftWeightsFile).string(), specs,
                           {{"format", "pt"}});
  for (const WrittenAdapter& w : tensors) write_tensor(writer, config, adapters, w);
  writer.commit();
  write_file_atomically((fs::path(directory) / kPeftConfigFile).string(),
                        config_json(lora, config, base).dump(2) + "\n");
}

// PEFT 0.21 with transformers 5 adapts the layers that its class has: fused ones, and the fused
// routed experts in place of gate_proj, up_proj and down_proj.
std::string lost_in_peft(const ModelConfig& config, const LoraConfig& lora) {
  const Family& family = family_of(config.family);
  if (!lora.enabled()) return "";
  for (const std::string& layer : adapted_layers(config, lora)) {
    const bool gate_up = layer.ends_with(".gate_proj") || layer.ends_with(".up_proj");
    const bool qkv =
        layer.ends_with(".q_proj") || layer.ends_with(".k_proj") || layer.ends_with(".v_proj");
    if ((gate_up && family.fused_gate_up) || (qkv && family.fused_qkv))
      return concat("PEFT drops some of these adapters: in ", family.model_type,
                    " it has one layer ", gate_up ? "gate_up_proj" : "qkv_proj", " in place of ",
                    layer,
                    "; trireme's commands compute all of them. To use the result elsewhere, merge "
                    "it (trireme checkpoint merge-lora)");
  }
  if (!family.peft_adapts_fused_experts) return "";
  for (const std::string& layer : adapted_layers(config, lora))
    if (layer.ends_with(".gate_proj") || layer.ends_with(".up_proj") ||
        layer.ends_with(".down_proj"))
      return concat(
          "PEFT computes another model with these adapters: in ",
          family_of(config.family).model_type,
          " it applies gate_proj, up_proj and down_proj to the routed experts and drops those of "
          "dense MLPs and shared experts (",
          layer,
          "); trireme's commands compute all of them. To "
          "use the result elsewhere, merge it (trireme checkpoint merge-lora), or set "
          "finetune.lora.target_modules to \"attention\"");
  return "";
}

}  // namespace trireme
