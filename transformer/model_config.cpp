#include "transformer/model_config.h"

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
  config.attention_bias = true;
  config.mlp_bias = true;
  check_divides(values, "n_head", config.num_heads, "n_embd", config.hidden_size, report);
  return config;
}

ModelConfig read_llama(const ConfigValues& values, ConfigReport& report) {
  ModelConfig config;
  config.family = ModelFamily::kLlama;
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
  config.attention_bias = values.flag("attention_bias");
  config.mlp_bias = values.flag("mlp_bias");
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

}  // namespace

ModelConfig read_model_config(const Json& json, const std::string& path, ConfigReport& report) {
  const std::string place = path.empty() ? "model_type" : path + ".model_type";
  const Json type = json.is_object() ? json.value("model_type", Json()) : Json();
  if (type != "gpt2" && type != "llama") {
    if (!json.is_object())
      report.error(path.empty() ? "model" : path, "must be an object, got " + shown(json));
    else if (type.is_null())
      report.error(place, "is required: gpt2 or llama");
    else if (type.is_string())
      report.error(place,
                   shown(type) + " is not available in this version; only gpt2 and llama are");
    else
      report.error(place, "must be a string, got " + shown(type));
    return {};
  }
  const bool is_gpt2 = type == "gpt2";
  const Schema& schema = model_schema(is_gpt2 ? ModelFamily::kGpt2 : ModelFamily::kLlama);
  const ConfigValues values = read_config(schema, json, path, report);
  ModelConfig config = is_gpt2 ? read_gpt2(values, report) : read_llama(values, report);
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
    json = {{"model_type", "llama"},
            {"architectures", Json::array({"LlamaForCausalLM"})},
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
            {"attention_bias", config.attention_bias},
            {"mlp_bias", config.mlp_bias},
            {"attention_dropout", config.attention_dropout}};
  }
  json["initializer_range"] = config.initializer_range;
  json["tie_word_embeddings"] = config.tie_word_embeddings;
  json["bos_token_id"] = id(config.bos_token_id);
  json["eos_token_id"] = id(config.eos_token_id);
  return json;
}

}  // namespace trireme
