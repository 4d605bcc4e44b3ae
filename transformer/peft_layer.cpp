#include "transformer/peft_layer.h"

#include "transformer/hf_source.h"

namespace trireme {

std::vector<int64_t> PeftLayer::shape(const ModelParameter& p, bool diagonal) const {
  std::vector<int64_t> out = p.shape;
  if (!is_a() || diagonal) out[0] *= parts;
  if (is_b() && diagonal) out[1] *= parts;
  return out;
}

PeftLayer peft_layer(const ModelConfig& config, const std::string& parameter) {
  const size_t end = parameter.rfind(".lora_");
  const std::string ours = parameter.substr(0, end);
  PeftLayer layer{.name = ours, .suffix = parameter.substr(end)};
  const HfSource source = hf_source(config, ours + ".weight");
  const std::string theirs = source.tensor.substr(0, source.tensor.rfind('.'));
  if (theirs == ours) return layer;
  layer.name = theirs;
  layer.part = source.first_row / config.hidden_size;
  layer.parts = 3;
  return layer;
}

}  // namespace trireme
