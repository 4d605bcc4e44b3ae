// A PEFT directory of arbitrary bytes: parts separated by a line of "%%" are adapter_config.json
// and the header of adapter_model.safetensors, which zeros follow. Opening it and checking it
// against a Llama and a GPT-2 throws InputError or accepts it; then every replaced parameter has a
// place among its tensors.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "engine/config/parse.h"
#include "engine/config/reader.h"
#include "engine/core/error.h"
#include "engine/observe/log.h"
#include "tests/fuzz/shard_file.h"
#include "tests/support/scratch_directory.h"
#include "transformer/families/config_json.h"
#include "transformer/formats/peft/peft_adapter.h"

namespace trireme {
namespace {

ModelConfig config_of(const char* json) {
  ConfigReport report;
  const ModelConfig config = read_model_config(parse_json(json, "config.json"), "", report);
  report.throw_if_errors("config.json");
  return config;
}

// Eight columns and two layers, as in seeds/peft_directory.
const std::vector<ModelConfig>& models() {
  static const std::vector<ModelConfig> models{
      config_of(R"({"model_type": "llama", "vocab_size": 11, "hidden_size": 8,
                    "intermediate_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
                    "attention_bias": true, "max_position_embeddings": 16})"),
      config_of(R"({"model_type": "gpt2", "vocab_size": 11, "n_embd": 8, "n_layer": 2,
                    "n_head": 2, "n_positions": 16})")};
  return models;
}

}  // namespace
}  // namespace trireme

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trireme;
  static const test::ScratchDirectory dir;
  set_log_level(LogLevel::kError);  // keys without effect log notes
  const auto parts = test::parts_of(std::string(reinterpret_cast<const char*>(data), size));
  if (parts.size() != 2) return 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir.path()))
    std::filesystem::remove(entry.path());
  std::ofstream(dir / kPeftConfigFile, std::ios::binary) << parts[0];
  test::write_shard(dir / kPeftWeightsFile, parts[1]);
  try {
    const PeftAdapter adapter(dir.path());
    test::read_every_tensor(adapter.tensors());
    for (const ModelConfig& config : models()) {
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
  } catch (const InputError&) {  // refused: expected
  }
  return 0;
}
