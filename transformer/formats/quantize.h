// Which weights of a model are quantised when it is written, and what that cost.
#pragma once

#include <map>
#include <string>

#include "engine/config/reader.h"
#include "engine/io/quantized_matrix.h"
#include "transformer/formats/file_tensor.h"

namespace trireme {

// Matrices of linear layers. Embeddings, the head, norms, biases, routers and the gate of a shared
// expert stay.
bool is_linear_weight(const ModelConfig& config, const ModelParameter& parameter);
bool is_linear_weight(const ModelConfig& config, const FileTensor& tensor);

// InputError where tensors of the source hold rounded codes already.
void check_not_quantised(const ModelSource& source);
// InputError where a value is NaN or infinite.
void check_finite(const std::string& tensor, const ConstTensor& values);
// InputError where what a file says of such values is not finite: they do not fit into its scales.
void check_finite(const std::string& tensor, const RoundingError& error);

[[noreturn]] void fail_none_fits();

// "quantization_config" of config.json; `head`, and `kept` in the layers: the modules of matrices
// that are not quantised.
Json quantization_to_json(const Quantization& quantization, const std::string& head,
                          std::vector<std::string> kept);

struct QuantisationReport {
  struct Kind {
    int64_t tensors = 0;
    int64_t before = 0, after = 0;  // bytes
    RoundingError error;            // of all their numbers
    double worst = 0;               // the tensor's with the largest relative()
    std::string worst_tensor;
  };
  std::map<std::string, Kind> kinds;  // by the file's word for what the tensors became
  void add(const std::string& kind, const std::string& tensor, int64_t before, int64_t after,
           const RoundingError& error);
};

}  // namespace trireme
