#include "transformer/formats/peft/peft_layer.h"

#include <algorithm>

#include "transformer/families/family.h"
#include "transformer/formats/hf/hf_source.h"

namespace trireme {

std::string PeftLayer::tensor() const {
  const char* const of_table = is_a() ? ".lora_embedding_B" : ".lora_embedding_A";
  return concat(kPeftPrefix, name, embedding ? of_table : suffix);
}

std::vector<int64_t> PeftLayer::shape(const ModelParameter& p, bool diagonal) const {
  std::vector<int64_t> out = p.shape;
  if (!is_a() || diagonal) out[0] *= parts;
  if (is_b() && diagonal) out[1] *= parts;
  if (embedding) std::ranges::reverse(out);
  return out;
}

PeftLayer peft_layer(const ModelConfig& config, const std::string& parameter) {
  const size_t end = parameter.rfind(".lora_");
  const std::string ours = parameter.substr(0, end);
  PeftLayer layer{.name = ours, .suffix = parameter.substr(end)};
  layer.embedding = ours == parameter_names(config).token_embedding;
  if (!family_of(config.family).conv1d) return layer;
  const HfSource source = hf_source(config, ours + ".weight");
  const std::string theirs = source.tensor.substr(0, source.tensor.rfind('.'));
  if (theirs == ours) return layer;
  layer.name = theirs;
  layer.part = source.first_row / config.hidden_size;
  layer.parts = 3;
  return layer;
}

}  // namespace trireme
