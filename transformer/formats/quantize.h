// Selection of the weights that an export quantizes, and the report of their rounding errors.
#pragma once

#include <map>
#include <string>

#include "engine/config/reader.h"
#include "engine/io/matrix_quantizer.h"
#include "transformer/formats/file_tensor.h"

namespace trireme {

// Returns whether an export may quantize a parameter: the matrix of a linear layer. Not embeddings,
// the head, norms, biases, routers, the gate of a shared expert, nor multi-token prediction layers.
bool is_linear_weight(const ModelConfig& config, const ModelParameter& parameter);
// The same for the first parameter of a tensor.
bool is_linear_weight(const ModelConfig& config, const FileTensor& tensor);

// InputError if tensors of the source are already quantized.
void check_not_quantized(const ModelSource& source);
// InputError if a value is NaN or infinite. values: float32, on the host.
void check_finite(const std::string& tensor, const ConstTensor& values);
// InputError if a tensor's rounding error is not finite: its values do not fit the format's scales.
void check_finite(const std::string& tensor, const RoundingError& error);

// InputError: no matrix of the model fits the format.
[[noreturn]] void fail_none_fits();

// Returns the "quantization_config" of config.json for kFp8 or kGptq. head: name of the head, which
// is not quantized. kept: names of the modules inside blocks whose matrices are not quantized.
Json quantization_to_json(const Quantization& quantization, const std::string& head,
                          std::vector<std::string> kept);

struct QuantizationReport {
  struct Kind {
    int64_t tensors = 0;
    int64_t before = 0, after = 0;  // bytes
    RoundingError error;            // of all elements
    double worst = 0;               // largest relative() of a tensor
    std::string worst_tensor;
  };
  std::map<std::string, Kind> kinds;  // by the format's name of the quantized type
  void add(const std::string& kind, const std::string& tensor, int64_t before, int64_t after,
           const RoundingError& error);
};

}  // namespace trireme
