#include "transformer/model_config.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/config/parse.h"
#include "engine/core/error.h"

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

// Returns whether it does; a divisor that is missing or wrong has been reported already.
bool check_divides(const ConfigValues& values, const std::string& small, int64_t divisor,
                   const std::string& large, int64_t dividend, ConfigReport& report) {
  if (divisor == 0 || dividend % divisor == 0) return true;
  report.error(values.spelled(small), concat(divisor, " does not divide ", large, " ", dividend));
  return false;
}

ModelConfig read_gpt2(const ConfigValues& values, ConfigReport& report) {
  ModelConfig config;
  config.family = ModelFamily::kGpt2;
  config.vocab_size = values.integer("vocab_size");
  config.hidden_size = values.integer("n_embd");
  config.intermediate_size =
      values.given("n_inner") ? values.integer("n_inner") : 4 * config.hidden_size;
  config.num_layers = values.integer("n_layer");
  config.num_heads = values.integer("n_head");
  config.num_kv_heads = config.num_heads;
  config.head_dim = config.num_heads > 0 ? config.hidden_size / config.num_heads : 0;
  config.max_positions = values.integer("n_positions");
  config.norm_eps = values.number("layer_norm_epsilon");
  config.initializer_range = values.number("initializer_range");
  config.residual_dropout = values.number("resid_pdrop");
  config.embedding_dropout = values.number("embd_pdrop");
  config.attention_dropout = values.number("attn_pdrop");
  config.tie_word_embeddings = values.flag("tie_word_embeddings");
  config.attention_bias = config.attention_output_bias = true;
  config.mlp_bias = true;
  check_divides(values, "n_head", config.num_heads, "n_embd", config.hidden_size, report);
  return config;
}

// Qwen2 has biases on q, k and v only, the others on all projections or none.
void read_biases(const ConfigValues& values, ModelConfig& config) {
  if (config.family == ModelFamily::kQwen2Moe) {
    config.attention_bias = values.flag("qkv_bias");
    return;
  }
  if (config.family == ModelFamily::kMixtral) return;
  config.attention_bias = config.attention_output_bias = values.flag("attention_bias");
  if (config.family == ModelFamily::kLlama) config.mlp_bias = values.flag("mlp_bias");
}

ModelConfig read_llama(const ConfigValues& values, ModelFamily family, ConfigReport& report) {
  ModelConfig config;
  config.family = family;
  config.vocab_size = values.integer("vocab_size");
  config.hidden_size = values.integer("hidden_size");
  config.intermediate_size = values.integer("intermediate_size");
  config.num_layers = values.integer("num_hidden_layers");
  config.num_heads = values.integer("num_attention_heads");
  config.num_kv_heads = values.given("num_key_value_heads") ? values.integer("num_key_value_heads")
                                                            : config.num_heads;
  config.max_positions = values.integer("max_position_embeddings");
  config.rope_theta = values.number("rope_theta");
  config.norm_eps = values.number("rms_norm_eps");
  config.initializer_range = values.number("initializer_range");
  config.attention_dropout = values.number("attention_dropout");
  config.tie_word_embeddings = values.flag("tie_word_embeddings");
  read_biases(values, config);
  if (family != ModelFamily::kLlama) config.moe = read_moe_config(values, family, report);
  check_divides(values, "num_key_value_heads", config.num_kv_heads, "num_attention_heads",
                config.num_heads, report);
  const char* const kSource = values.given("head_dim") ? "head_dim" : "num_attention_heads";
  if (values.given("head_dim")) {
    config.head_dim = values.integer("head_dim");
  } else if (config.num_heads > 0 && check_divides(values, kSource, config.num_heads, "hidden_size",
                                                   config.hidden_size, report)) {
    config.head_dim = config.hidden_size / config.num_heads;
  }
  if (config.head_dim % 2 != 0)
    report.error(values.spelled(kSource), concat("gives heads of width ", config.head_dim,
                                                 "; rotary positions need an even width"));
  return config;
}

// "gpt2, llama and deepseek"
std::string known_types(const std::string& last) {
  std::string out;
  for (ModelFamily f : kModelFamilies) {
    const bool first = f == std::begin(kModelFamilies)[0], end = f == std::end(kModelFamilies)[-1];
    out += concat(first ? "" : end ? " " + last + " " : ", ", model_type_name(f));
  }
  return out;
}

const char* architecture(ModelFamily family) {
  switch (family) {
    case ModelFamily::kMixtral: return "MixtralForCausalLM";
    case ModelFamily::kQwen2Moe: return "Qwen2MoeForCausalLM";
    case ModelFamily::kDeepseek: return "DeepseekForCausalLM";
    default: return "LlamaForCausalLM";
  }
}

// The reason for a family that someone may expect beside the known ones.
std::string why_not(const Json& type) {
  if (type == "deepseek_v2" || type == "deepseek_v3")
    return " (multi-head latent attention); deepseek has its experts";
  if (type == "qwen3_moe") return " (normalised queries and keys)";
  return "";
}

}  // namespace

const char* model_type_name(ModelFamily family) {
  switch (family) {
    case ModelFamily::kGpt2: return "gpt2";
    case ModelFamily::kLlama: return "llama";
    case ModelFamily::kMixtral: return "mixtral";
    case ModelFamily::kQwen2Moe: return "qwen2_moe";
    case ModelFamily::kDeepseek: return "deepseek";
  }
  TRIREME_UNREACHABLE("model family ", static_cast<int>(family));
}

ModelConfig read_model_config(const Json& json, const std::string& path, ConfigReport& report) {
  const std::string place = path.empty() ? "model_type" : path + ".model_type";
  const Json type = json.is_object() ? json.value("model_type", Json()) : Json();
  const auto* const found = std::ranges::find_if(
      kModelFamilies, [&](ModelFamily f) { return type == model_type_name(f); });
  if (found == std::end(kModelFamilies)) {
    if (!json.is_object())
      report.error(path.empty() ? "model" : path, "must be an object, got " + shown(json));
    else if (type.is_null())
      report.error(place, "is required: " + known_types("or"));
    else if (type.is_string())
      report.error(place, shown(type) + " is not available in this version" + why_not(type) +
                              "; only " + known_types("and") + " are");
    else
      report.error(place, "must be a string, got " + shown(type));
    return {};
  }
  const ConfigValues values = read_config(model_schema(*found), json, path, report);
  ModelConfig config =
      *found == ModelFamily::kGpt2 ? read_gpt2(values, report) : read_llama(values, *found, report);
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
  Json json;
  if (config.family == ModelFamily::kGpt2) {
    json = {{"model_type", "gpt2"},
            {"architectures", Json::array({"GPT2LMHeadModel"})},
            {"vocab_size", config.vocab_size},
            {"n_positions", config.max_positions},
            {"n_embd", config.hidden_size},
            {"n_layer", config.num_layers},
            {"n_head", config.num_heads},
            {"n_inner", config.intermediate_size},
            {"activation_function", "gelu_new"},
            {"layer_norm_epsilon", config.norm_eps},
            {"resid_pdrop", config.residual_dropout},
            {"embd_pdrop", config.embedding_dropout},
            {"attn_pdrop", config.attention_dropout}};
  } else {
    json = {{"model_type", model_type_name(config.family)},
            {"architectures", Json::array({architecture(config.family)})},
            {"vocab_size", config.vocab_size},
            {"max_position_embeddings", config.max_positions},
            {"hidden_size", config.hidden_size},
            {"intermediate_size", config.intermediate_size},
            {"num_hidden_layers", config.num_layers},
            {"num_attention_heads", config.num_heads},
            {"num_key_value_heads", config.num_kv_heads},
            {"head_dim", config.head_dim},
            {"hidden_act", "silu"},
            {"rms_norm_eps", config.norm_eps},
            {"rope_theta", config.rope_theta},
            {"attention_dropout", config.attention_dropout}};
    if (config.family == ModelFamily::kLlama || config.family == ModelFamily::kDeepseek)
      json["attention_bias"] = config.attention_bias;
    if (config.family == ModelFamily::kQwen2Moe) json["qkv_bias"] = config.attention_bias;
    if (config.family == ModelFamily::kLlama)
      json["mlp_bias"] = config.mlp_bias;
    else
      write_moe_config(config.moe, config.family, json);
  }
  json["initializer_range"] = config.initializer_range;
  json["tie_word_embeddings"] = config.tie_word_embeddings;
  json["bos_token_id"] = id(config.bos_token_id);
  json["eos_token_id"] = id(config.eos_token_id);
  return json;
}

}  // namespace trireme
