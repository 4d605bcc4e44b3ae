// Named tensors of third-party files, read in pieces and converted to the caller's dtype:
// safetensors (safetensors_directory.h), GGUF (gguf.h) and quantized safetensors
// (quantized_source.h).
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/tensor.h"

namespace trireme {

struct SourceTensor {
  std::string name;
  std::string dtype_name;  // name in the file: "BF16", "Q4_K"
  // Type that represents every value without loss (kF32 if quantized); absent if DType has none.
  // read() needs a float type.
  std::optional<DType> dtype;
  std::vector<int64_t> shape;  // row-major, the last dimension varies fastest
  int64_t bytes = 0;           // in the file
  bool quantized = false;      // stored with fewer bits than `dtype`
  int64_t numel() const;
};

class TensorSource {
 public:
  virtual ~TensorSource() = default;
  const std::string& path() const { return path_; }
  const std::vector<SourceTensor>& tensors() const { return tensors_; }
  const SourceTensor* find(std::string_view name) const;  // nullptr when absent
  virtual std::vector<std::string> files() const = 0;     // paths of the files with the tensors
  // Reads elements [begin, begin + destination.numel()) of the flattened `tensor`, an element of
  // tensors(), rounded once to the dtype of `destination`: a contiguous float tensor on the host.
  // Needs at most 1 MiB more and, for quantized safetensors, the scales of one matrix. InputError
  // for a tensor without float values.
  void read(const SourceTensor& tensor, int64_t begin, const Tensor& destination) const;

 protected:
  explicit TensorSource(std::string path) : path_(std::move(path)) {}
  void add(SourceTensor tensor);  // tensors are numbered in the order of adding
  virtual void read_elements(size_t number, int64_t begin, const Tensor& destination) const = 0;

 private:
  std::string path_;
  std::vector<SourceTensor> tensors_;
  std::map<std::string, size_t, std::less<>> by_name_;
};

// destination[i] = element i of `from`, of type `dtype` (any alignment), rounded once. Both types
// are floats, or equal.
void convert_elements(const Tensor& destination, DType dtype, std::span<const std::byte> from);
// The same from float32.
void convert_elements(const Tensor& destination, std::span<const float> from);

// Whether two tensors of a source have the same values in float32, bit by bit. False for different
// shapes or without float values.
bool same_values(const TensorSource& source, const SourceTensor& a, const SourceTensor& b);

// "(4, 16)"
std::string shape_text(const std::vector<int64_t>& shape);

}  // namespace trireme
