#include "transformer/families/config_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/config/nearest_word.h"
#include "engine/core/error.h"
#include "transformer/families/foreign_keys.h"
#include "transformer/families/other_families.h"

namespace trireme {
namespace {

// A token id, null, or a list of ids, of which the first is the end of a document (Llama 3 has
// several stop token ids; transformer/formats/stop_token_ids.h reads all).
int64_t read_token_id(const ConfigValues& values, const std::string& key, int64_t vocab_size,
                      ConfigReport& report) {
  constexpr size_t kMax = 1024;
  if (!values.valid(key) || !values.valid("vocab_size")) return -1;
  const Json& value = values.raw(key);
  if (value.is_null()) return -1;
  const Json list = value.is_array() ? value : Json::array({value});
  const auto is_integer = [](const Json& id) { return id.is_number_integer(); };
  if (list.size() > kMax || !std::ranges::all_of(list, is_integer)) {
    report.error(values.spelled(key), concat("must be null, a token id below vocab_size ",
                                             vocab_size, " or a list of such, got ", shown(value)));
    return -1;
  }
  const auto fits = [&](const Json& id) { return id >= 0 && id < vocab_size; };
  // As in transformers, such an id is ignored. Default ids belong to the default vocabulary.
  if (values.given(key) && !std::ranges::all_of(list, fits))
    report.note(values.spelled(key),
                concat(shown(value), " is outside the vocabulary (", vocab_size, " ids): ignored"));
  const auto first = std::ranges::find_if(list, fits);
  return first == list.end() ? -1 : first->get<int64_t>();
}

// Sizes within the bounds of their keys may still describe a model beyond any memory: too many
// parameters to list, or byte counts beyond 64 bits.
void check_product(const ModelConfig& c, const std::string& place, ConfigReport& report) {
  constexpr double kMaxExpertsOfModel = 1 << 18, kMaxParameters = 1e15;
  const double experts = static_cast<double>(c.num_layers) * static_cast<double>(c.moe.experts);
  if (experts > kMaxExpertsOfModel)
    report.error(place, concat(c.num_layers, " layers of ", c.moe.experts, " experts are ", experts,
                               ", at most ", kMaxExpertsOfModel, " are supported"));
  const auto width = static_cast<double>(c.hidden_size);
  const double heads = static_cast<double>(c.head_dim) * 2 *
                       (static_cast<double>(c.num_heads) + static_cast<double>(c.num_kv_heads));
  const double mlp =
      static_cast<double>(c.intermediate_size) +
      static_cast<double>(c.moe.experts) * static_cast<double>(c.moe.intermediate_size) +
      static_cast<double>(c.moe.shared_intermediate_size);
  const double all = width * (static_cast<double>(c.num_layers) * (heads + 3 * mlp) +
                              2 * static_cast<double>(c.vocab_size) +
                              (c.learned_positions ? static_cast<double>(c.max_positions) : 0));
  if (all > kMaxParameters)
    report.error(place, concat("the sizes make a model of ", all, " parameters, at most ",
                               kMaxParameters, " are supported"));
}

// "gpt2, llama and deepseek"
std::string known_types(const std::string& last) {
  const std::span<const Family* const> all = families();
  std::string out;
  for (size_t i = 0; i < all.size(); ++i)
    out += concat(i == 0 ? "" : i + 1 == all.size() ? " " + last + " " : ", ", all[i]->model_type);
  return out;
}

// "; nearest names: qwen3, qwen3_moe": the families with the longest part in common with an unknown
// type, from its first letter on, and the one with the fewest different letters. "": none is near.
std::string nearest_types(const std::string& type) {
  constexpr size_t kMinCommon = 4, kMaxLength = 64;
  if (type.size() > kMaxLength) return "";
  std::vector<std::string> known, near;
  size_t longest = kMinCommon;
  for (const Family* family : families()) {
    const std::string name = family->model_type;
    known.push_back(name);
    const auto common = static_cast<size_t>(std::ranges::mismatch(type, name).in1 - type.begin());
    if (common < longest) continue;
    if (common > longest) near.clear();
    longest = common;
    near.push_back(name);
  }
  const std::string word = nearest_word(type, known);
  if (!word.empty() && std::ranges::find(near, word) == near.end()) near.push_back(word);
  std::string out;
  for (const std::string& name : near)
    out += concat(out.empty() ? "; nearest names: " : ", ", name);
  return out;
}

// " (unlike llama, it has attention sinks)" for a model of another family, or of its text model;
// "": the family is unknown.
std::string features_of_other(const Json& json, const std::string& type) {
  if (const char* const features = other_family_features(type); features != nullptr)
    return concat(" (unlike llama, it has ", features, ")");
  const Json text = json.value("text_config", Json());
  const Json inner = text.is_object() ? text.value("model_type", Json()) : Json();
  const char* const features =
      inner.is_string() ? other_family_features(inner.get<std::string>()) : nullptr;
  return features == nullptr
             ? ""
             : concat(" (unlike llama, its text model ", shown(inner), " has ", features, ")");
}

// Configuration of the text model inside a multimodal one, completed by the keys that apply to all
// its parts. nullopt where `json` is not such a model. Reports errors and a note.
std::optional<Json> text_part(const Json& json, const std::string& path, ConfigReport& report) {
  const Json type = json.is_object() ? json.value("model_type", Json()) : Json();
  const MultimodalModel* const model =
      type.is_string() ? find_multimodal(type.get<std::string>()) : nullptr;
  if (model == nullptr) return std::nullopt;
  const std::string place = join_path(path, "text_config");
  if (!json.contains("text_config") || !json["text_config"].is_object()) {
    report.error(place, concat("is required: the text model of a ", model->model_type));
    return Json();
  }
  Json text = json["text_config"];
  for (const char* key : {"architectures", "bos_token_id", "eos_token_id", "tie_word_embeddings"})
    if (json.contains(key) && !json[key].is_null() && !text.contains(key)) text[key] = json[key];
  if (text.contains("architectures") && text["architectures"] == Json::array({model->architecture}))
    text.erase("architectures");  // that of all parts
  if (!text.contains("model_type")) text["model_type"] = model->text_type;
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
      report.error(place,
                   concat(shown(type), " is not available in this version",
                          features_of_other(json, type.get<std::string>()), "; only ",
                          known_types("and"), " are", nearest_types(type.get<std::string>())));
    else
      report.error(place, "must be a string, got " + shown(type));
    return {};
  }
  const ConfigValues values = read_config(model_schema(family->id), json, path, report);
  ModelConfig config;
  config.family = family->id;
  config.qk_norm = family->qk_norm;
  family->read(values, config, report);
  check_architectures(*family, values, report);
  if (!family->layer_types) check_layer_types(values, config, report);
  config.bos_token_id = read_token_id(values, "bos_token_id", config.vocab_size, report);
  config.eos_token_id = read_token_id(values, "eos_token_id", config.vocab_size, report);
  check_product(config, path.empty() ? "model" : path, report);
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
