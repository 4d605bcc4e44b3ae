#include "transformer/model_config.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/config/parse.h"
#include "engine/core/error.h"
#include "transformer/families/family.h"

namespace trireme {
namespace {

// A token id, null, or a list of ids of which the first is taken (Llama 3 lists several ends).
int64_t read_token_id(const ConfigValues& values, const std::string& key, int64_t vocab_size,
                      ConfigReport& report) {
  if (!values.valid(key) || !values.valid("vocab_size")) return -1;
  Json value = values.raw(key);
  if (value.is_array() && !value.empty()) {
    report.note(values.spelled(key), concat("the first of ", shown(value), " is used"));
    value = Json(value.front());
  }
  if (value.is_null()) return -1;
  const bool fits = value.is_number_integer() && value >= 0 && value < vocab_size;
  if (fits) return value.get<int64_t>();
  // HuggingFace's default ids belong to its default vocabulary.
  if (values.given(key))
    report.error(values.spelled(key), concat("must be null or a token id below vocab_size ",
                                             vocab_size, ", got ", shown(value)));
  return -1;
}

// "gpt2, llama and deepseek"
std::string known_types(const std::string& last) {
  const std::span<const Family* const> all = families();
  std::string out;
  for (size_t i = 0; i < all.size(); ++i)
    out += concat(i == 0 ? "" : i + 1 == all.size() ? " " + last + " " : ", ", all[i]->model_type);
  return out;
}

// The text part of a model that has others (images), with what its configuration says for all of them; not
// present where `json` is no such model. Errors and a note are reported.
std::optional<Json> text_part(const Json& json, const std::string& path, ConfigReport& report) {
  if (!json.is_object() || json.value("model_type", Json()) != "gemma3") return std::nullopt;
  const std::string place = join_path(path, "text_config");
  if (!json.contains("text_config") || !json["text_config"].is_object()) {
    report.error(place, "is required: the text model of a gemma3");
    return Json();
  }
  Json text = json["text_config"];
  for (const char* key : {"bos_token_id", "eos_token_id", "tie_word_embeddings"})
    if (json.contains(key) && !text.contains(key)) text[key] = json[key];
  if (!text.contains("model_type")) text["model_type"] = "gemma3_text";
  report.note(place, "the text model is read; the other parts and their tensors are left out");
  return text;
}

}  // namespace

ModelConfig read_model_config(const Json& json, const std::string& path, ConfigReport& report) {
  if (const std::optional<Json> text = text_part(json, path, report))
    return text->is_null() ? ModelConfig{}
                           : read_model_config(*text, join_path(path, "text_config"), report);
  const std::string place = path.empty() ? "model_type" : path + ".model_type";
  const Json type = json.is_object() ? json.value("model_type", Json()) : Json();
  const Family* const family = type.is_string() ? find_family(type.get<std::string>()) : nullptr;
  if (family == nullptr) {
    if (!json.is_object())
      report.error(path.empty() ? "model" : path, "must be an object, got " + shown(json));
    else if (type.is_null())
      report.error(place, "is required: " + known_types("or"));
    else if (type.is_string())
      report.error(place, shown(type) + " is not available in this version" + "; only " +
                              known_types("and") + " are");
    else
      report.error(place, "must be a string, got " + shown(type));
    return {};
  }
  const ConfigValues values = read_config(model_schema(family->id), json, path, report);
  ModelConfig config;
  config.family = family->id;
  family->read(values, config, report);
  config.bos_token_id = read_token_id(values, "bos_token_id", config.vocab_size, report);
  config.eos_token_id = read_token_id(values, "eos_token_id", config.vocab_size, report);
  return config;
}

std::string model_config_file(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return path;
  std::string file = (std::filesystem::path(path) / "config.json").string();
  if (!std::filesystem::exists(file, ignored))
    fail_input(path, ": holds no config.json, so it is no HuggingFace model directory");
  return file;
}

ModelConfig load_model_config(const std::string& path) {
  const std::string file = model_config_file(path);
  ConfigReport report;
  ModelConfig config = read_model_config(parse_json_file(file), "", report);
  report.throw_if_errors(file);
  return config;
}

Json model_config_to_json(const ModelConfig& config) {
  const auto id = [](int64_t token) { return token < 0 ? Json() : Json(token); };
  const Family& family = family_of(config.family);
  Json json;
  json["model_type"] = family.model_type;
  json["architectures"] = Json::array({family.architecture});
  family.write(config, json);
  json["initializer_range"] = config.initializer_range;
  json["tie_word_embeddings"] = config.tie_word_embeddings;
  json["bos_token_id"] = id(config.bos_token_id);
  json["eos_token_id"] = id(config.eos_token_id);
  return json;
}

}  // namespace trireme
