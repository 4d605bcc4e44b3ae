#include "transformer/families/window_keys.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "transformer/families/common_keys.h"

namespace trireme {
namespace {

constexpr const char* kSliding = "sliding_attention";
constexpr const char* kFull = "full_attention";

void add_size(Schema& schema, const char* preset, const char* help) {
  schema.integer("sliding_window", preset, help).or_null().at_least(0).at_most(kMaxPositions);
}

void add_layer_types(Schema& schema) {
  schema
      .any("layer_types", "null", "list of words",
           "of each layer \"full_attention\" or \"sliding_attention\"")
      .or_null();
}

Json layer_types(const ModelConfig& config) {
  Json types = Json::array();
  for (const int64_t window : config.windows) types.push_back(window > 0 ? kSliding : kFull);
  return types;
}

std::vector<int64_t> everywhere(const ModelConfig& config, int64_t window) {
  if (window == 0) return {};
  return std::vector<int64_t>(static_cast<size_t>(config.num_layers), window);
}

// Returns whether each layer has a window, from the strings of "layer_types".
std::vector<bool> read_layer_types(const ConfigValues& values, int64_t layers,
                                   ConfigReport& report) {
  const Json types = values.raw("layer_types");
  const std::string place = values.spelled("layer_types");
  if (!types.is_array() || std::ssize(types) != layers) {
    report.error(place, concat("must be a list of ", layers, " words, one for each layer, got ",
                               shown(types)));
    return {};
  }
  std::vector<bool> out;
  for (const Json& type : types) {
    if (type != kSliding && type != kFull)
      report.error(place,
                   concat("must hold \"", kFull, "\" and \"", kSliding, "\", got ", shown(type)));
    out.push_back(type == kSliding);
  }
  return out;
}

// Checks a configuration with at least one layer that has a window.
void check_window(const ConfigValues& values, ConfigReport& report) {
  if (values.valid("sliding_window") && values.raw("sliding_window") == 0)
    report.error(
        values.spelled("sliding_window"),
        "0 is a window in which a token attends to none, not even itself; write null where there "
        "is no window");
}

bool reads_most(WindowLayers layers) {
  return layers == WindowLayers::kFromMax || layers == WindowLayers::kEvenBelow;
}

bool has_window(const ModelConfig& config, WindowLayers layers, int64_t layer, int64_t most) {
  switch (layers) {
    case WindowLayers::kFromMax: return layer >= most;
    case WindowLayers::kEvenBelow: return layer % 2 == 0 && layer < most;
    case WindowLayers::kAll: return true;
    case WindowLayers::kUnrotated: return !config.rotates(layer);
  }
  TRIREME_UNREACHABLE("window layers ", static_cast<int>(layers));
}

// Windows of the layers that "layer_types" lists or, without it, of all but every interval-th.
// Returns whether there are such layers.
bool read_sliding_layers(const ConfigValues& values, int64_t interval, ModelConfig& config,
                         ConfigReport& report) {
  const int64_t window = values.integer("sliding_window");
  std::vector<bool> sliding;
  if (values.given("layer_types"))
    sliding = read_layer_types(values, config.num_layers, report);
  else
    for (int64_t l = 0; l < config.num_layers; ++l)
      sliding.push_back(interval > 0 && (l + 1) % interval != 0);
  if (std::ranges::find(sliding, true) == sliding.end()) return false;
  check_window(values, report);
  if (window > 0)
    for (const bool has : sliding) config.windows.push_back(has ? window : 0);
  return true;
}

}  // namespace

void add_window_key(Schema& schema, const char* preset) {
  add_size(schema, preset, "tokens that a token attends to, itself included; null: all before it");
}

void read_window_key(const ConfigValues& values, ModelConfig& config, ConfigReport& report) {
  check_window(values, report);
  config.windows = everywhere(config, values.integer("sliding_window"));
}

void write_window_key(const ModelConfig& config, Json& json) {
  json["sliding_window"] = config.has_windows() ? Json(config.window(0)) : Json();
}

void add_qwen_window_keys(Schema& schema, WindowLayers layers) {
  schema.boolean("use_sliding_window", false,
                 "some layers attend to the last sliding_window tokens only");
  add_size(schema, layers == WindowLayers::kUnrotated ? "null" : "4096",
           "tokens that a token attends to, itself included, in those layers; counts with "
           "use_sliding_window only");
  if (reads_most(layers))
    schema
        .integer("max_window_layers", "28",
                 layers == WindowLayers::kFromMax
                     ? "layers from this number on have the window, where layer_types is not given"
                     : "layers of even number below this have the window, where layer_types is not "
                       "given")
        .at_least(0);
  else
    schema.ignored("max_window_layers");
  if (layers != WindowLayers::kAll) add_layer_types(schema);
}

void read_qwen_window_keys(const ConfigValues& values, WindowLayers layers, ModelConfig& config,
                           ConfigReport& report) {
  const int64_t window = values.flag("use_sliding_window") ? values.integer("sliding_window") : 0;
  std::vector<bool> sliding;
  const bool listed = layers != WindowLayers::kAll && values.given("layer_types");
  if (listed) {
    sliding = read_layer_types(values, config.num_layers, report);
    if (window == 0 && std::ranges::find(sliding, true) != sliding.end())
      report.error(values.spelled("layer_types"),
                   concat("\"", kSliding, "\" needs use_sliding_window and sliding_window"));
  } else {
    const int64_t most = reads_most(layers) ? values.integer("max_window_layers") : 0;
    for (int64_t l = 0; l < config.num_layers; ++l)
      sliding.push_back(has_window(config, layers, l, most));
  }
  if (values.flag("use_sliding_window") && std::ranges::find(sliding, true) != sliding.end())
    check_window(values, report);
  if (window == 0 || std::ranges::find(sliding, true) == sliding.end()) return;
  for (const bool has : sliding) config.windows.push_back(has ? window : 0);
}

void write_qwen_window_keys(const ModelConfig& config, WindowLayers layers, Json& json) {
  if (!config.has_windows()) return;
  json["use_sliding_window"] = true;
  json["sliding_window"] = std::ranges::max(config.windows);
  if (layers == WindowLayers::kAll) return;
  json["layer_types"] = layer_types(config);
}

void add_pattern_window_keys(Schema& schema) {
  add_size(schema, "4096",
           "tokens that a token attends to, itself included, in the layers with a window");
  schema
      .integer("sliding_window_pattern", "6",
               "interval of layers with full attention, if layer_types is not given")
      .at_least(1);
  schema.ignored("_sliding_window_pattern");  // a copy of the above by transformers 5, or 6
  add_layer_types(schema);
}

void read_pattern_window_keys(const ConfigValues& values, ModelConfig& config,
                              ConfigReport& report) {
  read_sliding_layers(values, values.integer("sliding_window_pattern"), config, report);
}

void add_listed_window_keys(Schema& schema, const char* preset) {
  add_size(schema, preset,
           "tokens that a token attends to, itself included, in the layers with a window");
  add_layer_types(schema);
}

void read_listed_window_keys(const ConfigValues& values, int64_t interval, ModelConfig& config,
                             ConfigReport& report) {
  if (read_sliding_layers(values, interval, config, report) && !config.has_windows() &&
      values.valid("sliding_window"))
    report.error(values.spelled("sliding_window"),
                 concat("is required: some layers are \"", kSliding, "\""));
}

void write_pattern_window_keys(const ModelConfig& config, Json& json) {
  json["sliding_window"] = config.has_windows() ? Json(std::ranges::max(config.windows)) : Json();
  if (config.has_windows()) json["layer_types"] = layer_types(config);
}

void write_listed_window_keys(const ModelConfig& config, Json& json) {
  write_pattern_window_keys(config, json);
  if (config.has_windows()) return;
  json["layer_types"] = std::vector<std::string>(static_cast<size_t>(config.num_layers), kFull);
  json.erase("sliding_window");
}

}  // namespace trireme
