#include "transformer/families/rope_keys.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "transformer/families/common_keys.h"

namespace trireme {
namespace {

constexpr const char* kRotaryFactor = "partial_rotary_factor";
constexpr const char *kShortFactor = "short_factor", *kLongFactor = "long_factor";
constexpr const char* kOriginal = "original_max_position_embeddings";
constexpr const char* kWindowTheta = "rope_parameters.sliding_attention.rope_theta";

struct TypeName {
  RopeType type;
  const char* name;
};
constexpr TypeName kTypes[] = {{RopeType::kDefault, "default"}, {RopeType::kLinear, "linear"},
                               {RopeType::kDynamic, "dynamic"}, {RopeType::kLlama3, "llama3"},
                               {RopeType::kYarn, "yarn"},       {RopeType::kLongRope, "longrope"}};

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

// parameters: the object's other name, "rope_parameters" or one for a kind of layers in it.
Key& both_spellings(Key& row, const std::string& parameters) {
  const std::string leaf = leaf_name(row.path);
  return row.alias({join_path(parameters, leaf)});
}

void add_type(Schema& schema, const std::string& parameters, const char* key, const char* help) {
  std::vector<std::string> names;
  for (const TypeName& t : kTypes) names.emplace_back(t.name);
  both_spellings(schema.choice(path_of(key), "default", names, help), parameters)
      .or_null()
      .synonym("su", "longrope")
      .not_yet({"proportional", "mrope", "ntk"});
}

// Keys that a type reads, besides "rope_type" and "type".
bool reads(RopeType type, const std::string& key) {
  if (key == "factor") return type != RopeType::kDefault;
  if (key == "original_max_position_embeddings")
    return type == RopeType::kLlama3 || type == RopeType::kYarn || type == RopeType::kLongRope;
  if (key == "attention_factor") return type == RopeType::kYarn || type == RopeType::kLongRope;
  if (key == kShortFactor || key == kLongFactor) return type == RopeType::kLongRope;
  if (key == "low_freq_factor" || key == "high_freq_factor") return type == RopeType::kLlama3;
  return type == RopeType::kYarn;
}

constexpr const char* kNumbers[] = {"factor",           "original_max_position_embeddings",
                                    "low_freq_factor",  "high_freq_factor",
                                    "attention_factor", "beta_fast",
                                    "beta_slow",        "mscale",
                                    "mscale_all_dim",   "truncate",
                                    kShortFactor,       kLongFactor};

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
  if (!ratio && s.type != RopeType::kLongRope) require("factor");
  if (s.type == RopeType::kLlama3) {
    require("low_freq_factor");
    require("high_freq_factor");
    if (s.low_frequency_factor > s.high_frequency_factor)
      report.error(
          values.spelled(path_of("low_freq_factor")),
          concat(s.low_frequency_factor, " is above high_freq_factor ", s.high_frequency_factor));
  }
  if (s.type == RopeType::kYarn) check_yarn_base(values, config, report);
  if (s.type == RopeType::kDynamic && config.head_dim == 2)
    report.error(values.spelled(path_of("rope_type")), "dynamic needs a head_dim above 2");
}

void add_rotary_factor(Schema& schema, const std::string& parameters, const std::string& preset) {
  if (!preset.empty()) {
    schema.number(kRotaryFactor, preset, "part of each head that is rotated: its first elements")
        .or_null()
        .above(0)
        .at_most(1)
        .alias({concat("rope_parameters.", kRotaryFactor), concat("rope_scaling.", kRotaryFactor)});
    return;
  }
  both_spellings(schema.unavailable(path_of(kRotaryFactor), {"1"}, "rotary on a part of the head"),
                 parameters);
  schema.unavailable(kRotaryFactor, {"1"}, "rotary on a part of the head");
}

void read_rotary_factor(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  if (!values.valid(kRotaryFactor) || config.head_dim == 0) return;  // reported
  const Json& value = values.raw(kRotaryFactor);
  if (!value.is_number()) return;
  const auto factor = value.get<double>();
  // Rounded down, as transformers does.
  const auto width = static_cast<int64_t>(static_cast<double>(config.head_dim) * factor);
  const int64_t least = config.rope_scaling.type == RopeType::kDynamic ? 4 : 2;
  if (width < least || width % 2 != 0)
    report.error(values.spelled(kRotaryFactor),
                 concat(factor, " of heads of width ", config.head_dim, " rotates ", width,
                        " elements, expected an even number of at least ", least));
  if (width != config.head_dim) config.rotary_dim = width;
}

// The divisors of one list of longrope.
std::vector<double> read_divisors(const ConfigValues& values, const char* key, int64_t count,
                                  ConfigReport& report) {
  const std::string path = path_of(key);
  std::vector<double> out;
  const Json& list = values.raw(path);
  const auto fits = [](const Json& one) {
    return one.is_number() && std::isfinite(one.get<double>()) && one.get<double>() > 0;
  };
  if (!values.given(path))
    report.error(values.spelled(path), "is required by rope_type longrope");
  else if (!list.is_array() || std::ssize(list) != count || !std::ranges::all_of(list, fits))
    report.error(values.spelled(path), concat("is ", shown(list), ", expected a list of ", count,
                                              " numbers above 0, one for each frequency"));
  else
    out = list.get<std::vector<double>>();
  return out;
}

void read_longrope(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  RopeScaling& s = config.rope_scaling;
  if (!values.given(path_of("factor")))
    s.factor = std::max(
        1.0, static_cast<double>(config.max_positions) / static_cast<double>(s.original_positions));
  const int64_t count = rotary_width(config) / 2;
  s.short_factors = read_divisors(values, kShortFactor, count, report);
  s.long_factors = read_divisors(values, kLongFactor, count, report);
}

// Smallest factor from which read_rotary_factor() gets rotary_dim.
double rotary_factor_of(const ModelConfig& config) {
  const auto head = static_cast<double>(config.head_dim);
  const auto width = static_cast<double>(config.rotary_dim);
  const double factor = width / head;
  return head * factor < width ? std::nextafter(factor, 1.0) : factor;
}

// Keys of "rope_scaling", which are those of the object `parameters`, too.
void add_scaling_keys(Schema& schema, const std::string& parameters) {
  add_type(schema, parameters, "rope_type", "how the frequencies are scaled");
  add_type(schema, parameters, "type", "the older name of rope_type");
  const auto number = [&](const char* key, const char* preset, const char* help) -> Key& {
    return both_spellings(schema.number(path_of(key), preset, help), parameters).or_null();
  };
  number("factor", "null", "factor by which the context is longer").at_least(1);
  both_spellings(schema.integer(path_of(kOriginal), "null",
                                "llama3, yarn, longrope: context length of the original training; "
                                "null: max_position_embeddings"),
                 parameters)
      .or_null()
      .at_least(1)
      .at_most(kMaxPositions);
  number("low_freq_factor", "null",
         "llama3: frequencies with fewer turns in the original context are divided by factor")
      .above(0);
  number("high_freq_factor", "null",
         "llama3: frequencies with more turns in the original context are unchanged")
      .above(0);
  number("attention_factor", "null", "yarn, longrope: factor of cosines and sines; null: by factor")
      .above(0);
  number("beta_fast", "32",
         "yarn: frequencies with at least this many turns in the original context are unchanged")
      .above(0);
  number("beta_slow", "1",
         "yarn: frequencies with fewer turns in the original context are divided by factor")
      .above(0);
  for (const char* key : {kShortFactor, kLongFactor})
    both_spellings(schema.any(path_of(key), "null", "list of numbers",
                              concat("longrope: divisor of each frequency, for sequences ",
                                     key == kLongFactor ? "longer than" : "up to",
                                     " original_max_position_embeddings")),
                   parameters)
        .or_null();
  number("mscale", "null", "yarn: part of attention_factor where mscale_all_dim is given too")
      .at_least(0);
  number("mscale_all_dim", "null", "yarn: part of attention_factor where mscale is given too")
      .at_least(0);
  both_spellings(
      schema.boolean(path_of("truncate"), true, "yarn: the bounds of the ramp are whole numbers"),
      parameters);
}

// Element of the list: 1, 0, true or false; -1: none of these.
int rotates(const Json& element) {
  if (element.is_boolean()) return element.get<bool>() ? 1 : 0;
  if (!element.is_number_integer()) return -1;
  return element == 0 ? 0 : element == 1 ? 1 : -1;
}

}  // namespace

void add_rope_keys(Schema& schema, const RopeDefaults& preset) {
  schema.number("rope_theta", preset.theta, "base of the rotary frequencies")
      .above(0)
      .alias({"rope_parameters.rope_theta", "rope_scaling.rope_theta"});
  schema.section(
      "rope_scaling",
      "Scaling of the rotary frequencies for longer contexts; `rope_parameters` is the same.");
  add_scaling_keys(schema, "rope_parameters");
  add_rotary_factor(schema, "rope_parameters", preset.rotary_factor);
}

void read_rope_keys(const ConfigValues& values, ModelConfig& config, ConfigReport& report,
                    int64_t original_positions) {
  config.rope_theta = values.number("rope_theta");
  RopeScaling& s = config.rope_scaling;
  s.type = read_type(values, report);
  read_rotary_factor(values, config, report);
  for (const char* key : kNumbers)
    if (values.given(path_of(key)) && !reads(s.type, key))
      report.note(values.spelled(path_of(key)),
                  concat("is not read by rope_type ", name_of(s.type)));
  if (s.type == RopeType::kDefault) return;
  read_numbers(values, s);
  const std::string original = path_of(kOriginal);
  if (reads(s.type, kOriginal)) {
    const int64_t positions = values.integer(original);  // 0: null
    s.original_positions = original_positions > 0 ? original_positions
                           : positions > 0        ? positions
                                                  : config.max_positions;
    if (positions > 0 && positions != s.original_positions)
      report.error(values.spelled(original),
                   concat(positions, " differs from ", kOriginal, " ", s.original_positions,
                          " of the model, which transformers reads"));
  }
  if (s.type == RopeType::kLongRope && s.original_positions > 0)
    read_longrope(values, config, report);
  if (s.type == RopeType::kYarn && !values.given(path_of("factor")) && s.original_positions > 0)
    s.factor =
        static_cast<double>(config.max_positions) / static_cast<double>(s.original_positions);
  check_scaling(values, config, report);
}

bool gives_rope_object(const ConfigValues& values) {
  const auto in_object = [&](const char* key) { return values.given(path_of(key)); };
  const std::string theta = values.given("rope_theta") ? values.spelled("rope_theta") : "";
  return in_object("rope_type") || in_object("type") || std::ranges::any_of(kNumbers, in_object) ||
         theta.find("rope_parameters.") != std::string::npos ||
         theta.find("rope_scaling.") != std::string::npos;
}

void check_yarn_base(const ConfigValues& values, const ModelConfig& config, ConfigReport& report) {
  if (config.rope_theta <= 1)
    report.error(values.spelled("rope_theta"),
                 concat(config.rope_theta, " is not above 1, as rope_type yarn needs"));
}

void write_rope_keys(const ModelConfig& config, Json& json) {
  const RopeScaling& s = config.rope_scaling;
  json["rope_theta"] = config.rope_theta;
  if (config.rotary_dim > 0) json[kRotaryFactor] = rotary_factor_of(config);
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
  if (s.type == RopeType::kLongRope) {
    if (s.attention_factor > 0) scaling["attention_factor"] = s.attention_factor;
    scaling[kShortFactor] = s.short_factors;
    scaling[kLongFactor] = s.long_factors;
  }
  json["rope_scaling"] = std::move(scaling);
}

void add_windowed_rope_keys(Schema& schema, const char* theta_default) {
  schema
      .number("rope_theta", theta_default,
              "base of the rotary frequencies of layers with full attention")
      .above(0)
      .alias({"rope_parameters.full_attention.rope_theta"});
  schema
      .number(kWindowTheta, theta_default, "base of the rotary frequencies of layers with a window")
      .above(0);
  schema.unavailable("rope_parameters.sliding_attention.rope_type", {"\"default\""},
                     "scaled rotary frequencies of layers with a window");
  schema.section(
      "rope_scaling",
      "Scaling of the rotary frequencies for longer contexts, in layers with full attention; "
      "`rope_parameters.full_attention` is the same.");
  add_scaling_keys(schema, "rope_parameters.full_attention");
  add_rotary_factor(schema, "rope_parameters.full_attention", "");
}

void read_windowed_rope_keys(const ConfigValues& values, ModelConfig& config,
                             ConfigReport& report) {
  read_rope_keys(values, config, report);
  if (values.given(path_of("type")) && !values.given(path_of("rope_type")))
    report.error(values.spelled(path_of("type")), "is not read without rope_type in this family");
  const double theta = values.number(kWindowTheta);
  const bool same = theta == config.rope_theta && config.rope_scaling.type == RopeType::kDefault;
  if (config.has_windows() && !same) config.local_rope_theta = theta;
}

void write_windowed_rope_keys(const ModelConfig& config, Json& json) {
  write_rope_keys(config, json);
  Json full = json.value("rope_scaling", Json{{"rope_type", "default"}});
  full["rope_theta"] = config.rope_theta;
  const double theta = config.local_rope_theta > 0 ? config.local_rope_theta : config.rope_theta;
  json.erase("rope_scaling");
  json.erase("rope_theta");
  json["rope_parameters"] = {
      {"full_attention", std::move(full)},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", theta}}}};
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
                        "by it; write rope_type, and remove \"type\""));
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

void add_rope_layer_keys(Schema& schema) {
  schema
      .any("no_rope_layers", "null", "list of 0 and 1",
           "of each layer 1: rotary positions, 0: none; null and []: by no_rope_layer_interval")
      .or_null();
  schema
      .integer("no_rope_layer_interval", "4",
               "interval of layers without rotary positions, where no_rope_layers is not given")
      .at_least(1);
}

// Longer lists are read up to the last layer, as transformers does.
void read_rope_layer_keys(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  const char* const key = "no_rope_layers";
  const int64_t layers = config.num_layers;
  const Json list = values.given(key) ? values.raw(key) : Json::array();
  std::vector<uint8_t> out;
  if (list.is_array() && list.empty()) {
    const int64_t interval = std::max<int64_t>(1, values.integer("no_rope_layer_interval"));
    for (int64_t l = 0; l < layers; ++l) out.push_back((l + 1) % interval != 0 ? 1 : 0);
  } else if (list.is_array() && std::ssize(list) >= layers &&
             std::ranges::all_of(list, [](const Json& one) { return rotates(one) >= 0; })) {
    for (int64_t l = 0; l < layers; ++l)
      out.push_back(static_cast<uint8_t>(rotates(list[static_cast<size_t>(l)])));
  } else {
    report.error(values.spelled(key),
                 concat("must be a list of at least ", layers,
                        " numbers 0 and 1, one for each layer, or null, got ", shown(list)));
  }
  if (std::ranges::find(out, 0) == out.end()) out.clear();
  config.rope_layers = std::move(out);
}

void write_rope_layer_keys(const ModelConfig& config, Json& json) {
  Json list = Json::array();
  for (int64_t l = 0; l < config.num_layers; ++l) list.push_back(config.rotates(l) ? 1 : 0);
  json["no_rope_layers"] = std::move(list);
}

}  // namespace trireme
