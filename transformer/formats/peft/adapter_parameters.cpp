// Properties of adapters that do not depend on the content of their files (peft_adapter.h).
#include <filesystem>

#include "engine/io/input_file.h"
#include "transformer/formats/peft/peft_adapter.h"

namespace trireme {

std::vector<ModelParameter> adapter_parameters(const ModelConfig& config, const LoraConfig& lora) {
  const Model model(config, DType::kF32, Layout{}, split_layers(config.num_layers, 1, {}), lora);
  std::vector<ModelParameter> out;
  for (const ParameterSpec& spec : model.parameters().specs())
    if (spec.adapter)
      out.push_back({spec.name, {spec.shape.dims().begin(), spec.shape.dims().end()}, false});
  return out;
}

bool is_peft_adapter(const std::string& path) {
  return is_input_file((std::filesystem::path(path) / kPeftConfigFile).string());
}

}  // namespace trireme
