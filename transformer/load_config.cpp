#include "transformer/load_config.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>

#include "engine/config/parse.h"
#include "engine/core/error.h"
#include "engine/io/safetensors_directory.h"
#include "transformer/families/family.h"
#include "transformer/gguf_model.h"
#include "transformer/peft_adapter.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
constexpr const char* kConfig = "config.json";

// Takes away what the schema does not list; the names go to `names`.
void remove_unknown(const Schema& schema, const std::string& section, Json& object,
                    std::vector<std::string>& names) {
  for (auto at = object.begin(); at != object.end();) {
    const std::string& name = at.key();
    const std::string path = join_path(section, name);
    const bool dotted = name.find('.') != std::string::npos;
    const bool key = !dotted && schema.find_any(path) != nullptr;
    if (key || (!dotted && schema.is_section(path))) {
      if (!key && at->is_object()) remove_unknown(schema, path, *at, names);
      ++at;
      continue;
    }
    names.push_back(path);
    at = object.erase(at);
  }
}

// The keys that are not known, gone from `json`: of the text model where it is a part.
std::vector<std::string> take_unknown(Json& json) {
  std::vector<std::string> names;
  if (!json.is_object()) return names;
  json.erase("quantization_config");
  const Json type = json.value("model_type", Json());
  const bool has_text = type == "gemma3" && json.contains("text_config");
  Json& text = has_text ? json["text_config"] : json;
  const Family* family = has_text           ? find_family("gemma3_text")
                         : type.is_string() ? find_family(type.get<std::string>())
                                            : nullptr;
  if (family != nullptr && text.is_object())
    remove_unknown(model_schema(family->id), "", text, names);
  return names;
}

// "a, b and 3 more", on one line whatever the names are.
std::string listed(const std::vector<std::string>& names) {
  constexpr size_t kMostListed = 20;
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), kMostListed); ++i)
    out += concat(i == 0 ? "" : ", ", shown(Json(names[i])));
  if (names.size() > kMostListed) out += concat(" and ", names.size() - kMostListed, " more");
  return out;
}

}  // namespace

std::string model_config_file(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return path;
  std::string file = (fs::path(path) / kConfig).string();
  if (!fs::exists(file, ignored))
    fail_input(path, ": holds no config.json, so it is no HuggingFace model directory",
               model_advice(path));
  return file;
}

ModelConfig load_model_config(const std::string& path, std::vector<std::string>& notes) {
  if (is_gguf(path)) return GgufModel(path).config();
  const std::string file = model_config_file(path);
  Json json = parse_json_file(file);
  std::vector<std::string> unknown;
  if (fs::path(file).filename() == kConfig) unknown = take_unknown(json);
  ConfigReport report;
  ModelConfig config = read_model_config(json, "", report);
  report.throw_if_errors(file);
  if (!unknown.empty())
    notes.push_back(
        concat(file, ": keys that are not known here are passed over: ", listed(unknown)));
  std::ranges::transform(report.notes(), std::back_inserter(notes),
                         [&](const std::string& note) { return concat(file, ": ", note); });
  return config;
}

std::string model_advice(const std::string& path) {
  std::error_code ignored;
  const fs::path folder = path;
  if (is_peft_adapter(path))
    return "; it holds adapters: give the model that they are for, and them by --adapter (or merge "
           "both: trireme checkpoint merge-lora MODEL ADAPTERS DIR)";
  if (path.ends_with(".safetensors") && fs::is_regular_file(path, ignored))
    return "; a .safetensors file holds tensors only: give the directory that has its config.json";
  if (fs::is_directory(path, ignored) && holds_safetensors(path) &&
      !fs::exists(folder / kConfig, ignored))
    return "; it holds safetensors but no config.json, which says what model they are: copy that "
           "of "
           "the model here";
  return hub_advice(path);
}

}  // namespace trireme
