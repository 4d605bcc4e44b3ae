// A PEFT directory of any bytes: parts separated by a line of "%%" are adapter_config.json and the
// header of adapter_model.safetensors in front of zeros. Opening it and checking it against a model
// with Llama's names and one with GPT-2's throws InputError or accepts it, and then every parameter
// that it replaces has a place among its tensors.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "engine/core/error.h"
#include "engine/observe/log.h"
#include "tests/fuzz/shard_file.h"
#include "tests/support/scratch_directory.h"
#include "transformer/families/family.h"
#include "transformer/formats/peft/peft_adapter.h"

namespace trireme {
namespace {

constexpr int64_t kWidth = 8, kVocabulary = 11, kLayers = 2;

ModelConfig config_of(ModelFamily family, bool tied) {
  ModelConfig config;
  config.family = family;
  config.hidden_size = kWidth;
  config.vocab_size = kVocabulary;
  config.num_layers = kLayers;
  config.tie_word_embeddings = tied;
  return config;
}

// Linear layers of a block; all are of one size here.
std::vector<std::string> layers_of(const ModelConfig& config) {
  const bool gpt2 = config.family == ModelFamily::kGpt2;
  std::vector<std::string> out;
  for (int64_t layer = 0; layer < config.num_layers; ++layer)
    for (const char* name : {"q_proj", "v_proj", gpt2 ? "k_proj" : "o_proj"})
      out.push_back(concat(parameter_names(config).layers, ".", layer,
                           gpt2 ? ".attn." : ".self_attn.", name));
  return out;
}

}  // namespace

// The model without its layers' code.
std::vector<ModelParameter> adapter_parameters(const ModelConfig& config, const LoraConfig& lora) {
  std::vector<ModelParameter> out;
  for (const std::string& layer : layers_of(config)) {
    out.push_back({layer + ".lora_A.weight", {lora.rank, kWidth}, false});
    out.push_back({layer + ".lora_B.weight", {kWidth, lora.rank}, false});
    if (lora.dora) out.push_back({layer + kMagnitudeSuffix, {kWidth}, false});
  }
  return out;
}

std::vector<ModelParameter> model_parameters(const ModelConfig& config) {
  const ParameterNames& names = parameter_names(config);
  std::vector<ModelParameter> out{
      {concat(names.token_embedding, ".weight"), {kVocabulary, kWidth}, false},
      {concat(names.final_norm, ".weight"), {kWidth}, false}};
  for (const std::string& layer : layers_of(config)) {
    out.push_back({layer + ".weight", {kWidth, kWidth}, false});
    out.push_back({layer + ".bias", {kWidth}, false});
  }
  if (!config.tie_word_embeddings)
    out.push_back({concat(names.head, ".weight"), {kVocabulary, kWidth}, false});
  return out;
}

}  // namespace trireme

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trireme;
  static const test::ScratchDirectory dir;
  set_log_level(LogLevel::kError);  // keys without effect are noted
  const auto parts = test::parts_of(std::string(reinterpret_cast<const char*>(data), size));
  if (parts.size() != 2) return 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir.path()))
    std::filesystem::remove(entry.path());
  std::ofstream(dir / kPeftConfigFile, std::ios::binary) << parts[0];
  test::write_shard(dir / kPeftWeightsFile, parts[1]);
  try {
    const PeftAdapter adapter(dir.path());
    test::read_every_tensor(adapter.tensors());
    for (const ModelConfig& config :
         {config_of(ModelFamily::kLlama, false), config_of(ModelFamily::kGpt2, true)}) {
      try {
        adapter.check_adapters(config);
      } catch (const InputError&) {  // for another model
        continue;
      }
      (void)adapter.needs_merging(config);
      for (const ModelParameter& p : model_parameters(config))
        if (adapter.replaces(config, p.name))
          TRIREME_CHECK(adapter.tensors().find(adapter.place(config, p.name).tensor) != nullptr,
                        p.name, " has no place");
    }
  } catch (const InputError&) {  // refused: good
  }
  return 0;
}
