// Selection of the weights that are quantized in an export, and the report of their errors.
#pragma once

#include <map>
#include <string>

#include "engine/config/reader.h"
#include "engine/io/quantized_matrix.h"
#include "transformer/formats/file_tensor.h"

namespace trireme {

// Returns whether a parameter is the matrix of a linear layer. Embeddings, the head, norms, biases,
// routers and the gate of a shared expert are not quantized.
bool is_linear_weight(const ModelConfig& config, const ModelParameter& parameter);
bool is_linear_weight(const ModelConfig& config, const FileTensor& tensor);

// InputError where tensors of the source are already quantized.
void check_not_quantised(const ModelSource& source);
// InputError where a value is NaN or infinite.
void check_finite(const std::string& tensor, const ConstTensor& values);
// InputError where the error of a tensor's rounding is not finite: its values do not fit the
// format's scales.
void check_finite(const std::string& tensor, const RoundingError& error);

[[noreturn]] void fail_none_fits();

// "quantization_config" of config.json. head, and `kept` in the layers: modules whose matrices are
// not quantized.
Json quantization_to_json(const Quantization& quantization, const std::string& head,
                          std::vector<std::string> kept);

struct QuantisationReport {
  struct Kind {
    int64_t tensors = 0;
    int64_t before = 0, after = 0;  // bytes
    RoundingError error;            // of all elements
    double worst = 0;               // of the tensor with the largest relative()
    std::string worst_tensor;
  };
  std::map<std::string, Kind> kinds;  // by the format's name of the quantized type
  void add(const std::string& kind, const std::string& tensor, int64_t before, int64_t after,
           const RoundingError& error);
};

}  // namespace trireme
