#include "transformer/checkpoint/model_bundle.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "transformer/families/config_json.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr const char* kImported = "imported";
constexpr int64_t kMaxLoraRank = 65536;  // limit of finetune.lora.rank

DType dtype_of_name(const std::string& name) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16})
    if (name == dtype_name(dtype)) return dtype;
  fail_input("unknown dtype \"", name, "\" in an imported checkpoint");
}

ModelConfig read_model(const Json& json, const char* title) {
  ConfigReport report;
  ModelConfig model = read_model_config(json, "model", report);
  report.throw_if_errors(title);
  return model;
}

bool is_enabled(const Json& config, const char* section) {
  return config.contains(section) && config[section].at("enabled").get<bool>();
}

// A string member that may be absent or null.
std::string word_of(const Json& section, const char* key) {
  const Json value = section.value(key, Json());
  return value.is_null() ? "" : value.get<std::string>();
}

// Section finetune.lora of a resolved configuration.
LoraConfig read_saved_lora(const Json& json) {
  LoraConfig lora;
  lora.rank = json.at("rank").get<int64_t>();
  if (lora.rank < 1 || lora.rank > kMaxLoraRank)
    fail_input("finetune.lora.rank ", lora.rank, " is not between 1 and ", kMaxLoraRank);
  lora.alpha = json.at("alpha").get<double>();
  lora.dropout = json.value("dropout", 0.0);
  lora.rank_stabilized = json.value("use_rslora", false);
  lora.dora = json.value("use_dora", false);
  const Json& targets = json.at("target_modules");
  if (targets.is_string())
    lora.pattern = targets.get<std::string>();
  else
    lora.targets = targets.get<std::vector<std::string>>();
  return lora;
}

ModelBundle imported_bundle(const Json& imported, const std::string& checkpoint) {
  ModelBundle bundle;
  bundle.model = read_model(imported.at("model"), "imported checkpoint");
  bundle.dtype = dtype_of_name(imported.at("dtype").get<std::string>());
  bundle.tokenizer = imported.at("tokenizer").get<std::string>();
  if (!bundle.tokenizer.empty() && bundle.tokenizer != "byte")
    bundle.tokenizer =
        (fs::path(checkpoint).parent_path() / kTokenizerFolder / bundle.tokenizer).string();
  bundle.lineage.special_tokens = true;
  return bundle;
}

ModelBundle bundle_of_run(const Json& config) {
  ModelBundle bundle;
  bundle.model = read_model(config.at("model"), "configuration");
  if (is_enabled(config, "bf16")) bundle.dtype = DType::kBF16;
  if (is_enabled(config, "fp16")) bundle.dtype = DType::kF16;
  bundle.tokenizer = word_of(config.value("data", Json::object()), "tokenizer");
  bundle.load = word_of(config.value("checkpoint", Json::object()), "load");
  if (config.contains("comm"))
    bundle.device_backend = config["comm"].value("device_backend", bundle.device_backend);
  if (config.contains("finetune")) {
    bundle.lineage.special_tokens = true;
    if (const Json& finetune = config["finetune"]; finetune.contains("lora"))
      bundle.lora = read_saved_lora(finetune["lora"]);
  }
  return bundle;
}

}  // namespace

void with_state(const CheckpointReader& reader, const std::function<void(const Json&)>& read) {
  try {
    read(reader.state());
  } catch (const nlohmann::json::exception& e) {
    fail_input("checkpoint ", reader.directory(),
               ": its training state does not have the format of this version (", e.what(), ")");
  }
}

ModelBundle model_bundle_of(const Json& state, const std::string& checkpoint) {
  const bool imported = is_imported_state(state);
  ModelBundle bundle = imported ? imported_bundle(state.at(kImported), checkpoint)
                                : bundle_of_run(state.at("config"));
  const bool special_tokens = bundle.lineage.special_tokens;
  bundle.lineage = lineage_from_json(state);
  bundle.lineage.special_tokens |= special_tokens;
  return bundle;
}

ModelBundle read_model_bundle(const CheckpointReader& reader) {
  ModelBundle bundle;
  with_state(reader, [&](const Json& state) {
    try {
      bundle = model_bundle_of(state, reader.directory());
    } catch (const InputError& e) {
      fail_input("checkpoint ", reader.directory(), ": ", e.what());
    }
  });
  return bundle;
}

Json imported_state(const ModelConfig& model, DType dtype, const std::string& tokenizer) {
  return {{kImported,
           {{"model", model_config_to_json(model)},
            {"dtype", dtype_name(dtype)},
            {"tokenizer", tokenizer}}}};
}

bool is_imported_state(const Json& state) { return state.is_object() && state.contains(kImported); }

}  // namespace trireme
