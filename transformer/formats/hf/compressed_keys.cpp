#include "transformer/formats/hf/compressed_keys.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"

namespace trireme {
namespace {

constexpr int64_t kMaxGroupSize = 1 << 20;
using Names = std::initializer_list<std::string_view>;

// One object of the configuration. Keys that are neither read nor ignored are errors.
class Section {
 public:
  Section(const Json& json, std::string place, ConfigReport& report)
      : json_(json), place_(std::move(place)), report_(report) {}

  Json get(const char* key) {
    known_.emplace_back(key);
    return json_.contains(key) ? json_[key] : Json();
  }
  void ignore(Names keys) { known_.insert(known_.end(), keys.begin(), keys.end()); }
  std::string place(const std::string& key) const { return concat(place_, ".", key); }
  void error(const std::string& key, const std::string& why) { report_.error(place(key), why); }
  void refuse(const std::string& key, const Json& value, const char* what) {
    error(key, concat(shown(value), " is not supported: ", what));
  }
  void check_all_known() {
    for (const auto& [key, value] : json_.items())
      if (!value.is_null() && std::ranges::find(known_, key) == known_.end())
        error(key, concat("unknown key (value ", shown(value), "), which may change the weights"));
  }

 private:
  const Json& json_;
  std::string place_;
  ConfigReport& report_;
  std::vector<std::string> known_;
};

int64_t positive(Section& section, const char* key, const Json& value) {
  if (value.is_number_integer() && value > 0 && value <= kMaxGroupSize) return value.get<int64_t>();
  section.error(key,
                concat("must be a whole number of 1 to ", kMaxGroupSize, ", got ", shown(value)));
  return 1;
}

void read_scales(Section& weights, const Json& strategy, Quantization& q) {
  const Json size = weights.get("group_size"), block = weights.get("block_structure");
  q.block_rows = 1;
  q.block_columns = -1;
  const bool packed = q.method == Quantization::Method::kPackedInt;
  if (strategy == "tensor" && !packed) {
    q.block_rows = -1;
  } else if (strategy == "group") {
    q.block_columns = positive(weights, "group_size", size);
  } else if (strategy == "block" && !packed) {
    if (!block.is_array() || block.size() != 2)
      return weights.error("block_structure", concat("must be two numbers, got ", shown(block)));
    q.block_rows = positive(weights, "block_structure", block[0]);
    q.block_columns = positive(weights, "block_structure", block[1]);
  } else if (strategy != "channel") {
    weights.error("strategy", concat(shown(strategy),
                                     " is not supported; supported: channel, group, and tensor ",
                                     "and block for weights that are not packed"));
  }
}

// Reads "weights" of a group. format: of the whole configuration.
Quantization read_weights(const Json& json, const std::string& place, const std::string& format,
                          ConfigReport& report) {
  Section weights(json, place, report);
  Quantization q;
  const Json bits = weights.get("num_bits"), type = weights.get("type");
  const bool floats = type == "float", packed = format == "pack-quantized";
  if (!floats && type != "int")
    weights.error("type", concat("must be \"int\" or \"float\", got ", shown(type)));
  if (format != "naive-quantized" && floats != (format == "float-quantized"))
    weights.error("type", concat(shown(type), " does not go with format ", format));
  if (bits != 8 && !(packed && bits == 4))
    weights.error(
        "num_bits",
        concat(shown(bits), " bits are not supported; supported: ", packed ? "4, 8" : "8"));
  q.bits = packed && bits == 4 ? 4 : 8;
  q.method = packed   ? Quantization::Method::kPackedInt
             : floats ? Quantization::Method::kScaledFloat
                      : Quantization::Method::kScaledInt;
  const Json symmetric = weights.get("symmetric"), dynamic = weights.get("dynamic");
  q.symmetric = symmetric.is_null() || symmetric == true;
  if (!q.symmetric && !packed)
    weights.refuse("symmetric", symmetric, "zeros of weights that are not packed");
  if (!dynamic.is_null() && dynamic != false)
    weights.refuse("dynamic", dynamic, "weights that are quantized as they are computed with");
  const Json order = weights.get("actorder");
  if (!order.is_null() && order != false && order != "weight" && order != "static")
    weights.refuse("actorder", order, "groups of inputs in another order (weight_g_idx)");
  read_scales(weights, weights.get("strategy"), q);
  // Search for the scales, and types that follow from the tensors.
  weights.ignore({"observer", "observer_kwargs", "scale_dtype", "zp_dtype"});
  weights.check_all_known();
  return q;
}

bool same(const Quantization& a, const Quantization& b) {
  return a.method == b.method && a.bits == b.bits && a.symmetric == b.symmetric &&
         a.block_rows == b.block_rows && a.block_columns == b.block_columns;
}

Quantization read_group(const Json& json, const std::string& place, const std::string& format,
                        ConfigReport& report) {
  Section group(json, place, report);
  group.ignore({"targets"});
  const Json inputs = group.get("input_activations"), outputs = group.get("output_activations");
  if (inputs.is_object() && inputs.value("dynamic", Json()) != true)
    group.error("input_activations.dynamic",
                concat(shown(inputs.value("dynamic", Json())),
                       " is not supported: scales of activations in the file"));
  if (!inputs.is_null() && !inputs.is_object())
    group.error("input_activations", concat("must be an object or null, got ", shown(inputs)));
  if (!outputs.is_null())
    group.refuse("output_activations", outputs, "quantized outputs of layers");
  const Json own = group.get("format");
  if (!own.is_null() && own != format)
    group.error("format", concat(shown(own), " differs from the format ", format));
  const Json weights = group.get("weights");
  group.check_all_known();
  if (weights.is_object()) return read_weights(weights, place + ".weights", format, report);
  group.error("weights", concat("must be an object, got ", shown(weights)));
  return {};
}

}  // namespace

void add_compressed_keys(Schema& schema) {
  schema
      .choice("format", "float-quantized",
              {"float-quantized", "int-quantized", "naive-quantized", "pack-quantized"},
              "8-bit floats or integers, or integers of 4 or 8 bits in int32s")
      .not_yet({"dense", "fakequant", "mixed-precision", "marlin-24", "sparse-bitmask",
                "sparse-24-bitmask", "nvfp4-pack-quantized", "mxfp4-pack-quantized",
                "mxfp6-pack-quantized", "mxfp8-quantized"});
  schema
      .any("config_groups", "", "object of groups",
           "of each: \"targets\" (the tensors show which modules), \"weights\" with \"num_bits\", "
           "\"type\", \"symmetric\", \"strategy\" (channel, group, tensor, block), \"group_size\", "
           "\"block_structure\" and \"actorder\" (null or \"weight\"), the same in all groups; "
           "\"input_activations\" null or dynamic, which are computed in full precision here; "
           "other keys of a group or its weights are refused")
      .required();
  schema.unavailable("kv_cache_scheme", {}, "a quantized cache of keys and values");
  schema.unavailable("sparsity_config", {"{}"}, "sparse weights");
  schema.unavailable("transform_config", {"{}"}, "rotated weights");
  schema.unavailable("moe_sparsity_config", {}, "sparse experts");
  schema.choice("quantization_status", "compressed", {"compressed"}, "what was done to the weights")
      .or_null()
      .not_yet({"initialized", "calibration", "frozen", "decompressed"});
  for (const char* key : {"ignore", "global_compression_ratio", "version"}) schema.ignored(key);
}

Quantization read_compressed_keys(const ConfigValues& values, ConfigReport& report) {
  const Json groups = values.raw("config_groups");
  const std::string format = values.valid("format") ? values.word("format") : "";
  Quantization q;
  if (!values.given("format"))
    report.error(values.spelled("format"), "is required: the layout of the weights");
  if (!values.given("format") || format.empty()) return q;
  if (!groups.is_object() || groups.empty()) {
    report.error(values.spelled("config_groups"),
                 concat("must be an object of groups, got ", shown(groups)));
    return q;
  }
  bool first = true;
  for (const auto& [name, group] : groups.items()) {
    const std::string place = concat(values.spelled("config_groups"), ".", name);
    if (!group.is_object()) {
      report.error(place, concat("must be an object, got ", shown(group)));
      continue;
    }
    const Quantization own = read_group(group, place, format, report);
    if (!first && !same(own, q))
      report.error(place + ".weights",
                   "are quantized in another way than those of the first group");
    if (first) q = own;
    first = false;
  }
  return q;
}

}  // namespace trireme
