#include "transformer/families/rope_keys.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "transformer/families/common_keys.h"

namespace trireme {
namespace {

struct TypeName {
  RopeType type;
  const char* name;
};
constexpr TypeName kTypes[] = {{RopeType::kDefault, "default"},
                               {RopeType::kLinear, "linear"},
                               {RopeType::kDynamic, "dynamic"},
                               {RopeType::kLlama3, "llama3"},
                               {RopeType::kYarn, "yarn"}};

const char* name_of(RopeType type) {
  for (const TypeName& t : kTypes)
    if (t.type == type) return t.name;
  TRIREME_UNREACHABLE("rope type ", static_cast<int>(type));
}

RopeType type_of(const std::string& name) {
  for (const TypeName& t : kTypes)
    if (t.name == name) return t.type;
  return RopeType::kDefault;  // reported
}

std::string path_of(const char* key) { return concat("rope_scaling.", key); }

Key& both_spellings(Key& row) {
  const std::string leaf = leaf_name(row.path);
  return row.alias({concat("rope_parameters.", leaf)});
}

void add_type(Schema& schema, const char* key, const char* help) {
  std::vector<std::string> names;
  for (const TypeName& t : kTypes) names.emplace_back(t.name);
  both_spellings(schema.choice(path_of(key), "default", names, help))
      .or_null()
      .not_yet({"longrope", "su", "proportional", "mrope", "ntk"});
}

// Keys that a type reads, besides "rope_type" and "type".
bool reads(RopeType type, const std::string& key) {
  if (key == "factor") return type != RopeType::kDefault;
  if (key == "original_max_position_embeddings")
    return type == RopeType::kLlama3 || type == RopeType::kYarn;
  if (key == "low_freq_factor" || key == "high_freq_factor") return type == RopeType::kLlama3;
  return type == RopeType::kYarn;
}

constexpr const char* kNumbers[] = {"factor",           "original_max_position_embeddings",
                                    "low_freq_factor",  "high_freq_factor",
                                    "attention_factor", "beta_fast",
                                    "beta_slow",        "mscale",
                                    "mscale_all_dim",   "truncate"};

RopeType read_type(const ConfigValues& values, ConfigReport& report) {
  const std::string now = path_of("rope_type"), old = path_of("type");
  if (!values.given(old)) return type_of(values.word(now));
  if (values.given(now) && values.word(now) != values.word(old))
    report.error(values.spelled(old), concat(shown(values.raw(old)), " differs from rope_type ",
                                             shown(values.raw(now))));
  return type_of(values.word(old));
}

void read_numbers(const ConfigValues& values, RopeScaling& s) {
  const auto number = [&](const char* key, double& to) {
    if (values.given(path_of(key))) to = values.number(path_of(key));
  };
  number("factor", s.factor);
  number("low_freq_factor", s.low_frequency_factor);
  number("high_freq_factor", s.high_frequency_factor);
  number("attention_factor", s.attention_factor);
  number("beta_fast", s.beta_fast);
  number("beta_slow", s.beta_slow);
  number("mscale", s.mscale);
  number("mscale_all_dim", s.mscale_all_dim);
  s.truncate = values.flag(path_of("truncate"));
}

void check_scaling(const ConfigValues& values, const ModelConfig& config, ConfigReport& report) {
  const RopeScaling& s = config.rope_scaling;
  const auto require = [&](const char* key) {
    const std::string path = path_of(key);
    if (!values.given(path) && values.valid(path))
      report.error(values.spelled(path), concat("is required by rope_type ", name_of(s.type)));
  };
  // Default factor of yarn: the ratio of the two lengths.
  const bool ratio =
      s.type == RopeType::kYarn && values.given(path_of("original_max_position_embeddings"));
  if (!ratio) require("factor");
  if (s.type == RopeType::kLlama3) {
    require("low_freq_factor");
    require("high_freq_factor");
    if (s.low_frequency_factor >= s.high_frequency_factor)
      report.error(values.spelled(path_of("low_freq_factor")),
                   concat(s.low_frequency_factor, " is not below high_freq_factor ",
                          s.high_frequency_factor));
  }
  if (s.type == RopeType::kYarn && config.rope_theta <= 1)
    report.error(values.spelled("rope_theta"),
                 concat(config.rope_theta, " is not above 1, as rope_type yarn needs"));
  if (s.type == RopeType::kDynamic && config.head_dim == 2)
    report.error(values.spelled(path_of("rope_type")), "dynamic needs a head_dim above 2");
}

}  // namespace

void add_rope_keys(Schema& schema, const char* theta_default) {
  schema.number("rope_theta", theta_default, "base of the rotary frequencies")
      .above(0)
      .alias({"rope_parameters.rope_theta", "rope_scaling.rope_theta"});
  schema.section(
      "rope_scaling",
      "Scaling of the rotary frequencies for longer contexts; `rope_parameters` is the same.");
  add_type(schema, "rope_type", "how the frequencies are scaled");
  add_type(schema, "type", "the older name of rope_type");
  const auto number = [&](const char* key, const char* preset, const char* help) -> Key& {
    return both_spellings(schema.number(path_of(key), preset, help)).or_null();
  };
  number("factor", "null", "factor by which the context is longer").at_least(1);
  both_spellings(schema.integer(path_of("original_max_position_embeddings"), "null",
                                "llama3, yarn: context length of the original training; null: "
                                "max_position_embeddings"))
      .or_null()
      .at_least(1)
      .at_most(kMaxPositions);
  number("low_freq_factor", "null",
         "llama3: frequencies with fewer turns in the original context are divided by factor")
      .above(0);
  number("high_freq_factor", "null",
         "llama3: frequencies with more turns in the original context are unchanged")
      .above(0);
  number("attention_factor", "null", "yarn: factor of cosines and sines; null: by factor").above(0);
  number("beta_fast", "32",
         "yarn: frequencies with at least this many turns in the original context are unchanged")
      .above(0);
  number("beta_slow", "1",
         "yarn: frequencies with fewer turns in the original context are divided by factor")
      .above(0);
  number("mscale", "null", "yarn: part of attention_factor where mscale_all_dim is given too")
      .at_least(0);
  number("mscale_all_dim", "null", "yarn: part of attention_factor where mscale is given too")
      .at_least(0);
  both_spellings(
      schema.boolean(path_of("truncate"), true, "yarn: the bounds of the ramp are whole numbers"));
  both_spellings(
      schema.unavailable(path_of("partial_rotary_factor"), {"1"}, "rotary on a part of the head"));
  schema.unavailable("partial_rotary_factor", {"1"}, "rotary on a part of the head");
}

void read_rope_keys(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  config.rope_theta = values.number("rope_theta");
  RopeScaling& s = config.rope_scaling;
  s.type = read_type(values, report);
  for (const char* key : kNumbers)
    if (values.given(path_of(key)) && !reads(s.type, key))
      report.note(values.spelled(path_of(key)),
                  concat("is not read by rope_type ", name_of(s.type)));
  if (s.type == RopeType::kDefault) return;
  read_numbers(values, s);
  const std::string original = path_of("original_max_position_embeddings");
  if (reads(s.type, "original_max_position_embeddings"))
    s.original_positions = values.given(original) ? values.integer(original) : config.max_positions;
  if (s.type == RopeType::kYarn && !values.given(path_of("factor")) && s.original_positions > 0)
    s.factor =
        static_cast<double>(config.max_positions) / static_cast<double>(s.original_positions);
  check_scaling(values, config, report);
}

void write_rope_keys(const ModelConfig& config, Json& json) {
  const RopeScaling& s = config.rope_scaling;
  json["rope_theta"] = config.rope_theta;
  if (s.type == RopeType::kDefault) return;
  Json scaling = {{"rope_type", name_of(s.type)}, {"factor", s.factor}};
  if (s.original_positions > 0) scaling["original_max_position_embeddings"] = s.original_positions;
  if (s.type == RopeType::kLlama3) {
    scaling["low_freq_factor"] = s.low_frequency_factor;
    scaling["high_freq_factor"] = s.high_frequency_factor;
  }
  if (s.type == RopeType::kYarn) {
    if (s.attention_factor > 0) scaling["attention_factor"] = s.attention_factor;
    if (s.mscale > 0) scaling["mscale"] = s.mscale;
    if (s.mscale_all_dim > 0) scaling["mscale_all_dim"] = s.mscale_all_dim;
    scaling["beta_fast"] = s.beta_fast;
    scaling["beta_slow"] = s.beta_slow;
    scaling["truncate"] = s.truncate;
  }
  json["rope_scaling"] = std::move(scaling);
}

void add_layered_rope_keys(Schema& schema, const char* theta_default, const char* local_default) {
  schema
      .number("rope_theta", theta_default,
              "base of the rotary frequencies of layers with full attention")
      .above(0)
      .alias({"rope_parameters.full_attention.rope_theta"});
  schema
      .number("rope_local_base_freq", local_default,
              "base of the rotary frequencies of layers with a window")
      .above(0)
      .alias({"rope_parameters.sliding_attention.rope_theta"});
  schema.section(
      "rope_scaling",
      "Scaling of the rotary frequencies for longer contexts, in layers with full attention; "
      "`rope_parameters.full_attention` is the same.");
  schema
      .choice(path_of("rope_type"), "default", {"default", "linear"},
              "how the frequencies are scaled")
      .alias({"rope_parameters.full_attention.rope_type", "rope_parameters.full_attention.type"})
      .or_null()
      .not_yet({"dynamic", "llama3", "yarn", "longrope", "proportional"});
  schema
      .any(path_of("type"), "null", "as rope_type",
           "the older name of rope_type, which must be given too: versions of transformers differ")
      .or_null();
  schema.number(path_of("factor"), "null", "factor by which the context is longer")
      .alias({"rope_parameters.full_attention.factor"})
      .or_null()
      .at_least(1);
  schema.unavailable("rope_parameters.sliding_attention.rope_type", {"\"default\""},
                     "scaled rotary frequencies of layers with a window");
}

void read_layered_rope_keys(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  config.rope_theta = values.number("rope_theta");
  // Without windows no layer reads the local frequencies.
  if (config.has_windows()) config.local_rope_theta = values.number("rope_local_base_freq");
  const std::string factor = path_of("factor"), old = path_of("type");
  const bool named = values.given(path_of("rope_type"));
  const Json type = named ? values.raw(path_of("rope_type")) : Json("default");
  if (values.given(old) && values.raw(old) != type)
    report.error(values.spelled(old),
                 concat(shown(values.raw(old)), named ? " is not rope_type" : " without rope_type",
                        ": transformers 5 does not read it in this family, earlier versions scale "
                        "by it; write rope_type, and take \"type\" away"));
  if (values.word(path_of("rope_type")) != "linear") {
    if (values.given(factor))
      report.note(values.spelled(factor), "is not read by rope_type default");
    return;
  }
  if (!values.given(factor))
    report.error(values.spelled(factor), "is required by rope_type linear");
  config.rope_scaling.type = RopeType::kLinear;
  config.rope_scaling.factor = values.given(factor) ? values.number(factor) : 1;
  // Published configurations have the longer length in max_position_embeddings: 131072 with a
  // factor of 8.
  config.rope_scaling.original_positions = std::max(
      int64_t{1},
      static_cast<int64_t>(static_cast<double>(config.max_positions) / config.rope_scaling.factor));
}

void write_layered_rope_keys(const ModelConfig& config, Json& json) {
  json["rope_theta"] = config.rope_theta;
  if (config.local_rope_theta > 0) json["rope_local_base_freq"] = config.local_rope_theta;
  if (config.rope_scaling.type == RopeType::kLinear)
    json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", config.rope_scaling.factor}};
}

}  // namespace trireme
