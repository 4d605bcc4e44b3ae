#include "transformer/formats/load_config.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>

#include "engine/config/parse.h"
#include "engine/core/error.h"
#include "engine/io/safetensors_directory.h"
#include "transformer/families/config_json.h"
#include "transformer/families/family.h"
#include "transformer/formats/gguf/gguf_model.h"
#include "transformer/formats/hf/hf_model.h"
#include "transformer/formats/peft/peft_adapter.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
constexpr const char* kConfig = "config.json";

// Removes keys that are not in the schema from a config.json. Names of keys with value null go to
// names(); any other value could change the mathematics and is an error.
class UnknownKeys {
 public:
  UnknownKeys(const Schema& schema, std::string prefix, ConfigReport& report)
      : schema_(schema), prefix_(std::move(prefix)), report_(report) {}

  void take(const std::string& section, Json& object) {
    for (auto at = object.begin(); at != object.end();) {
      const std::string path = join_path(section, at.key());
      const bool dotted = at.key().find('.') != std::string::npos;
      const bool key = schema_.find_any(path) != nullptr;
      if (!dotted && (key || schema_.is_section(path))) {
        if (!key && at->is_object()) take(path, *at);
        ++at;
        continue;
      }
      const std::string place = join_path(prefix_, path);
      if (at->is_null())
        names_.push_back(place);
      else if (!key && report_.errors().size() < kMaxErrors)
        report_.error(
            shown(Json(place)),
            concat("unknown key (value ", shown(*at),
                   "), which may change the model's output; remove it from the file if it does not "
                   "(docs/reference/model-keys.md lists the known keys)"));
      at = object.erase(at);
    }
  }
  const std::vector<std::string>& names() const { return names_; }

 private:
  static constexpr size_t kMaxErrors = 20;
  const Schema& schema_;
  std::string prefix_;
  ConfigReport& report_;
  std::vector<std::string> names_;
};

// Removes unknown keys with value null from `json` and returns their names; in a multimodal model,
// from its text model.
std::vector<std::string> take_unknown(Json& json, ConfigReport& report) {
  if (!json.is_object()) return {};
  json.erase("quantization_config");
  const Json type = json.value("model_type", Json());
  const bool has_text = type == "gemma3" && json.contains("text_config");
  Json& text = has_text ? json["text_config"] : json;
  const Family* family = has_text           ? find_family("gemma3_text")
                         : type.is_string() ? find_family(type.get<std::string>())
                                            : nullptr;
  if (family == nullptr || !text.is_object()) return {};
  UnknownKeys unknown(model_schema(family->id), has_text ? "text_config" : "", report);
  unknown.take("", text);
  return unknown.names();
}

// "a, b and 3 more", quoted onto one line.
std::string listed(const std::vector<std::string>& names) {
  constexpr size_t kMaxListed = 20;
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), kMaxListed); ++i)
    out += concat(i == 0 ? "" : ", ", shown(Json(names[i])));
  if (names.size() > kMaxListed) out += concat(" and ", names.size() - kMaxListed, " more");
  return out;
}

// As in transformers 5: a tied model whose files hold a head with other values is untied.
void untie_head(const std::string& path, const Json& json, ModelConfig& config,
                std::vector<std::string>& notes) {
  std::error_code ignored;
  if (!config.tie_word_embeddings || !fs::is_directory(path, ignored) || !holds_safetensors(path) ||
      !has_head_of_its_own(config, *open_hf_tensors(path, json)))
    return;
  config.tie_word_embeddings = false;
  notes.push_back(concat((fs::path(path) / kConfig).string(), ": tie_word_embeddings is true, but ",
                         parameter_names(config).head,
                         ".weight holds other values than the token embedding: the head "
                         "is kept and not tied; write false there to silence this"));
}

}  // namespace

std::string model_config_file(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return path;
  std::string file = (fs::path(path) / kConfig).string();
  if (!fs::exists(file, ignored))
    fail_input(path, ": holds no config.json, so it is not a HuggingFace model directory",
               model_advice(path));
  return file;
}

ModelConfig load_model_config(const std::string& path, std::vector<std::string>& notes) {
  if (is_gguf(path)) return GgufModel(path).config();
  const std::string file = model_config_file(path);
  const Json whole = parse_published_json_file(file);
  Json json = whole;
  std::vector<std::string> unknown;
  ConfigReport report;
  if (fs::path(file).filename() == kConfig) unknown = take_unknown(json, report);
  ModelConfig config = read_model_config(json, "", report);
  report.throw_if_errors(file);
  untie_head(path, whole, config, notes);
  if (!unknown.empty())
    notes.push_back(concat(file, ": ignoring unknown keys with the value null: ", listed(unknown)));
  std::ranges::transform(report.notes(), std::back_inserter(notes),
                         [&](const std::string& note) { return concat(file, ": ", note); });
  return config;
}

std::string model_advice(const std::string& path) {
  std::error_code ignored;
  const fs::path folder = path;
  if (is_peft_adapter(path))
    return "; it holds adapters: give the model that they were trained for, and the adapters with "
           "--adapter (or merge both: trireme checkpoint merge-lora MODEL ADAPTERS DIR)";
  if (path.ends_with(".safetensors") && fs::is_regular_file(path, ignored))
    return "; a .safetensors file holds tensors only: give the directory that has its config.json";
  if (fs::is_directory(path, ignored) && holds_safetensors(path) &&
      !fs::exists(folder / kConfig, ignored))
    return "; it holds safetensors but no config.json, which describes the model: copy the "
           "model's config.json "
           "here";
  return hub_advice(path);
}

}  // namespace trireme
