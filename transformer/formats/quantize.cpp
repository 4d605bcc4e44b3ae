#include "transformer/formats/quantize.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "transformer/families/family.h"

namespace trireme {
namespace {

// Regular expression that matches the name literally.
std::string literally(const std::string& name) {
  std::string out;
  for (const char c : name) out += c == '.' ? std::string("\\.") : std::string(1, c);
  return out;
}

}  // namespace

bool is_linear_weight(const ModelConfig& config, const ModelParameter& parameter) {
  const ParameterNames& names = parameter_names(config);
  const std::string& name = parameter.name;
  if (parameter.shape.size() != 2 || parameter.selection_bias || parameter.mtp ||
      !name.ends_with(".weight") || !name.starts_with(concat(names.layers, ".")))
    return false;
  const std::string routers = concat(".", names.experts, ".", names.router);
  return name.find(routers + ".") == std::string::npos &&
         name.find(routers + "_noise.") == std::string::npos &&
         !name.ends_with(concat(names.shared_expert, "_gate.weight"));
}

bool is_linear_weight(const ModelConfig& config, const FileTensor& tensor) {
  return is_linear_weight(config, tensor.parts.front().parameter);
}

void check_not_quantized(const ModelSource& source) {
  for (const SourceTensor& tensor : source.tensors().tensors())
    if (tensor.quantized)
      fail_input(source.path(), " is quantized (\"", tensor.name, "\" is ", tensor.dtype_name,
                 "): quantizing it again would add a second rounding error; give the original "
                 "model, or dequantize it first: trireme checkpoint convert");
}

void check_finite(const std::string& tensor, const ConstTensor& values) {
  const float* const x = values.as<float>();
  for (int64_t i = 0; i < values.numel(); ++i)
    if (!std::isfinite(x[i]))
      fail_input("tensor \"", tensor, "\" holds ", x[i], ", which cannot be quantized");
}

void check_finite(const std::string& tensor, const RoundingError& error) {
  if (!std::isfinite(error.squared_error))
    fail_input("tensor \"", tensor, "\" holds numbers of up to ", error.max_abs,
               ", too large for float16 scales");
}

void fail_none_fits() {
  fail_input(
      "none of the model's matrices fits the format: the number of inputs must be a multiple of ",
      "128 for GPTQ, and of 32 or 256 for GGUF");
}

Json quantization_to_json(const Quantization& q, const std::string& head,
                          std::vector<std::string> kept) {
  if (q.method == Quantization::Method::kFp8) {
    kept.insert(kept.begin(), head);
    return {{"quant_method", "fp8"},
            {"fmt", "e4m3"},
            {"activation_scheme", "dynamic"},
            {"weight_block_size", {q.block_rows, q.block_columns}},
            {"modules_to_not_convert", kept}};
  }
  Json json = {
      {"quant_method", "gptq"}, {"bits", q.bits},   {"group_size", q.group_size}, {"sym", true},
      {"desc_act", false},      {"lm_head", false}, {"checkpoint_format", "gptq"}};
  for (const std::string& module : kept)
    json["dynamic"]["-:^" + literally(module) + "$"] = Json::object();
  return json;
}

void QuantizationReport::add(const std::string& kind, const std::string& tensor, int64_t before,
                             int64_t after, const RoundingError& error) {
  Kind& k = kinds[kind];
  ++k.tensors;
  k.before += before;
  k.after += after;
  k.error.add(error);
  if (error.relative() <= k.worst) return;
  k.worst = error.relative();
  k.worst_tensor = tensor;
}

}  // namespace trireme
