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
#include "transformer/formats/hf/quantization_keys.h"
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

// Family of a config.json's text model, and the section that has its keys; "" at the top level.
struct TextModel {
  const Family* family = nullptr;  // nullptr: unknown, or without an object of keys
  std::string section;
};

TextModel text_model(const Json& json) {
  if (!json.is_object()) return {};
  const Json type = json.value("model_type", Json());
  const MultimodalModel* const model =
      type.is_string() ? find_multimodal(type.get<std::string>()) : nullptr;
  if (model != nullptr && json.contains("text_config")) {
    const Json& text = json["text_config"];
    if (!text.is_object()) return {nullptr, "text_config"};
    const Json inner = text.value("model_type", Json(model->text_type));
    return {inner.is_string() ? find_family(inner.get<std::string>()) : nullptr, "text_config"};
  }
  return {type.is_string() ? find_family(type.get<std::string>()) : nullptr, ""};
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

// Removes unknown keys with value null from `json` and returns their names; in a multimodal model,
// from its text model.
std::vector<std::string> take_unknown(Json& json, ConfigReport& report) {
  if (!json.is_object()) return {};
  json.erase("quantization_config");
  const TextModel model = text_model(json);
  if (model.family == nullptr) return {};
  UnknownKeys unknown(model_schema(model.family->id), model.section, report);
  unknown.take("", model.section.empty() ? json : json[model.section]);
  return unknown.names();
}

// Appends the JSON paths of given keys that have no effect on what the model computes.
void find_ignored(const Schema& schema, const std::string& prefix, const std::string& section,
                  const Json& object, std::vector<std::string>& out) {
  for (const auto& [name, value] : object.items()) {
    const std::string path = join_path(section, name);
    const Key* const key = schema.find_any(path);
    if (key != nullptr && key->status == KeyStatus::kIgnored)
      out.push_back(join_path(prefix, path));
    else if (key == nullptr && value.is_object() && schema.is_section(path))
      find_ignored(schema, prefix, path, value, out);
  }
}

std::vector<std::string> ignored_keys(const Json& json) {
  const TextModel model = text_model(json);
  std::vector<std::string> out;
  if (model.family != nullptr)
    find_ignored(model_schema(model.family->id), model.section, "",
                 model.section.empty() ? json : json[model.section], out);
  return out;
}

// A config.json without its quantization_config. Adds notes; reports errors.
ModelConfig read_third_party(const Json& whole, std::vector<std::string>& notes,
                             ConfigReport& report) {
  Json json = whole;
  const std::vector<std::string> unknown = take_unknown(json, report);
  ModelConfig config = read_model_config(json, "", report);
  if (!unknown.empty())
    notes.push_back(concat("ignoring unknown keys with the value null: ", listed(unknown)));
  return config;
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
  const Json json = parse_published_json_file(file);
  std::vector<std::string> found;
  ConfigReport report;
  const bool published = fs::path(file).filename() == kConfig;
  ModelConfig config =
      published ? read_third_party(json, found, report) : read_model_config(json, "", report);
  report.throw_if_errors(file);
  untie_head(path, json, config, notes);
  std::ranges::copy(report.notes(), std::back_inserter(found));
  std::ranges::transform(found, std::back_inserter(notes),
                         [&](const std::string& note) { return concat(file, ": ", note); });
  return config;
}

ThirdPartyConfig read_third_party_config(const std::string& path) {
  ThirdPartyConfig out;
  out.file = model_config_file(path);
  const Json json = parse_published_json_file(out.file);
  ConfigReport report;
  out.config = read_third_party(json, out.notes, report);
  std::ranges::copy(report.notes(), std::back_inserter(out.notes));
  std::string problems;
  const auto add_problems = [&](const auto& check) {
    try {
      check();
    } catch (const InputError& e) {
      problems += concat(problems.empty() ? "" : "\n", e.what());
    }
  };
  add_problems([&] { report.throw_if_errors(out.file); });
  const Json quantization = json.is_object() ? json.value("quantization_config", Json()) : Json();
  if (!quantization.is_null())
    add_problems(
        [&] { out.quantization = quantization_name(read_quantization(quantization, out.file)); });
  if (!problems.empty()) throw InputError(problems);
  out.ignored = ignored_keys(json);
  return out;
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
