#include "transformer/formats/hf/quantization_keys.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/core/error.h"
#include "transformer/formats/hf/compressed_keys.h"

namespace trireme {
namespace {

constexpr const char* kMethods[] = {"fp8", "gptq", "awq", "compressed-tensors", "mxfp4"};
constexpr double kMaxGroup = 1 << 20;

void add_ignored(Schema& schema, const char* names) {
  std::istringstream all(names);
  for (std::string key; all >> key;) schema.ignored(key);
}

void add_fp8(Schema& schema) {
  schema
      .any("weight_block_size", "", "two numbers", "rows and columns of a block, which has a scale")
      .required();
  schema.choice("fmt", "e4m3", {"e4m3"}, "the 8-bit floats")
      .synonym("float8_e4m3fn", "e4m3")
      .not_yet({"e5m2"});
  schema.unavailable("activation_scheme", {"\"dynamic\""}, "scales of activations in the file");
  schema.unavailable("expert_dtype", {"\"fp8\""}, "experts in 4 bits");
  schema.unavailable("kv_cache_scheme", {}, "a quantized cache of keys and values");
  // Which tensors are quantized, and their scales, follows from the tensors.
  add_ignored(schema,
              "modules_to_not_convert ignored_layers modules_to_convert dequantize scale_fmt");
}

void add_packed(Schema& schema) {
  schema.integer("bits", "4", "bits of a weight").alias({"w_bit"});
  schema.integer("group_size", "128", "inputs that share a scale; -1: all")
      .alias({"q_group_size"})
      .at_least(-1)
      .at_most(kMaxGroup);
  schema.choice("pack_dtype", "int32", {"int32"}, "the integers that weights are packed into");
  schema.unavailable("rotation", {}, "rotated weights");
  schema.unavailable("adapter", {}, "adapters beside the quantized weights");
  schema.unavailable("is_marlin_format", {"false"}, "Marlin's packing");
  // Quantization algorithm, tool, and kernels of other programs.
  add_ignored(schema,
              "sym desc_act true_sequential static_groups damp_percent damp_auto_increment "
              "act_group_aware mse dataset tokenizer model_name_or_path model_file_base_name "
              "block_name_to_quantize module_name_preceding_first_block batch_size pad_token_id "
              "modules_in_block_to_quantize model_seqlen cache_block_outputs max_input_length "
              "use_exllama disable_exllama exllama_config use_cuda_fp16 lm_head meta quantizer "
              "pack_impl offload_to_disk offload_to_disk_path gptaq v2 v2_alpha v2_memory_device "
              "mock_quantization vram_strategy fail_safe failsafe device hyb_act foem "
              "hessian calib_data modules_to_not_convert");
}

void add_gptq(Schema& schema) {
  add_packed(schema);
  schema
      .choice("checkpoint_format", "gptq", {"gptq", "gptq_v2"},
              "the packing; gptq_v2: zeros as they are")
      .alias({"format"})
      .or_null()
      .not_yet({"marlin", "gptq_marlin", "bitblas", "ipex", "qqq"});
  schema
      .any("dynamic", "null", "an object of patterns of layers' names",
           "layers that are not quantized (\"-:PATTERN\"); others with bits of their own are not "
           "read")
      .or_null();
  add_ignored(schema, "backend version");
}

void add_awq(Schema& schema) {
  add_packed(schema);
  schema.choice("version", "gemm", {"gemm"}, "the packing")
      .alias({"checkpoint_format", "format"})
      .or_null()
      .not_yet({"gemv", "gemv_fast", "exllama", "ipex", "llm-awq", "marlin"});
  schema.unavailable("zero_point", {"true"}, "groups without zeros");
  schema.unavailable("backend", {"\"autoawq\"", "\"auto\"", "\"legacy_awq\""},
                     "another program's packing");
  schema.unavailable("dynamic", {"{}"}, "layers with bits of their own");
  add_ignored(schema, "do_fuse modules_to_fuse fuse_max_seq_len");
}

// Which tensors are quantized follows from the tensors; the format has no parameters.
void add_mxfp4(Schema& schema) { add_ignored(schema, "modules_to_not_convert dequantize"); }

Schema method_schema(const std::string& method) {
  Schema schema(concat("quantization_config of ", method));
  schema.choice("quant_method", method, {method}, "how weights are quantized");
  if (method == "fp8") add_fp8(schema);
  if (method == "gptq") add_gptq(schema);
  if (method == "awq") add_awq(schema);
  if (method == "compressed-tensors") add_compressed_keys(schema);
  if (method == "mxfp4") add_mxfp4(schema);
  schema.finish();
  return schema;
}

std::string method_of(const Json& json) {
  if (!json.is_object() || !json.contains("quant_method")) return "";
  const Json& method = json["quant_method"];
  return method.is_string() ? method.get<std::string>() : "";
}

void read_blocks(const ConfigValues& values, Quantization& q, ConfigReport& report) {
  const Json block = values.raw("weight_block_size");
  if (!block.is_array() || block.size() != 2 || !block[0].is_number_unsigned() ||
      !block[1].is_number_unsigned() || block[0] == 0 || block[1] == 0 || block[0] > kMaxGroup ||
      block[1] > kMaxGroup)
    return report.error(values.spelled("weight_block_size"),
                        concat("fp8 needs a weight_block_size of two numbers, got ", shown(block)));
  q.block_rows = block[0].get<int64_t>();
  q.block_columns = block[1].get<int64_t>();
}

void read_packed(const ConfigValues& values, bool awq, Quantization& q, ConfigReport& report) {
  q.method = awq ? Quantization::Method::kAwq : Quantization::Method::kGptq;
  q.bits = values.integer("bits");
  q.group_size = values.integer("group_size");
  if (q.bits != 4 && (awq || q.bits != 8))
    report.error(values.spelled("bits"),
                 concat(q.bits, " bits are not supported; supported: ", awq ? "4" : "4, 8"));
  if (q.group_size == 0)
    report.error(values.spelled("group_size"),
                 "is 0; expected at least 1, or -1 for one group of all inputs");
  if (awq) return;
  q.stores_unshifted_zeros = values.word("checkpoint_format") == "gptq_v2";
  const Json layers = values.raw("dynamic");
  if (!layers.is_object()) return;
  for (const auto& [pattern, changes] : layers.items())
    if (!pattern.starts_with("-:") && !changes.empty())
      report.error(values.spelled("dynamic"),
                   concat("layers ", shown(Json(pattern)), " with ", shown(changes),
                          " of their own are not supported"));
}

}  // namespace

std::span<const char* const> quantization_methods() { return kMethods; }

const Schema& quantization_schema(const std::string& method) {
  static const std::map<std::string, Schema> schemas = [] {
    std::map<std::string, Schema> out;
    for (const char* name : kMethods) out.emplace(name, method_schema(name));
    return out;
  }();
  return schemas.at(method);
}

Quantization read_quantization(const Json& given, const std::string& file) {
  const std::string method = method_of(given);
  if (std::ranges::find(kMethods, method) == std::end(kMethods))
    fail_input(
        file, ": quantization_config ", shown(given),
        " is not supported; supported: fp8 in blocks, gptq of 4 and 8 bits, awq (gemm) of 4 bits, ",
        "compressed-tensors of 8-bit floats and of 4- and 8-bit integers, mxfp4");
  const Schema& schema = quantization_schema(method);
  Json json = Json::object();
  for (const auto& [key, value] : given.items())  // null: not given, for any key
    if (!value.is_null() || schema.find_any(key) != nullptr) json[key] = value;
  ConfigReport report;
  const ConfigValues values = read_config(schema, json, "quantization_config", report);
  Quantization q;
  if (method == "fp8")
    read_blocks(values, q, report);
  else if (method == "compressed-tensors")
    q = read_compressed_keys(values, report);
  else if (method == "mxfp4")
    q.method = Quantization::Method::kMxfp4;
  else
    read_packed(values, method == "awq", q, report);
  report.throw_if_errors(file);
  return q;
}

}  // namespace trireme
