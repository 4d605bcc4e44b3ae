// Weights of a HuggingFace directory: model.safetensors, else shards with an index.
//
//   model.safetensors.index.json   {"metadata": {...},
//                                   "weight_map": {"tensor": "model-00001-of-00002.safetensors"}}
//
// Untrusted input: the index's file names must be plain names, the shards' headers are checked
// (safetensors.h), and both must name the same tensors. Missing and superfluous tensors are listed
// in one InputError, up to 12 of each.
#pragma once

#include <memory>

#include "engine/io/safetensors.h"
#include "engine/io/tensor_source.h"

namespace trireme {

inline constexpr const char* kSafetensorsFile = "model.safetensors";
inline constexpr const char* kSafetensorsIndex = "model.safetensors.index.json";

class SafetensorsDirectory : public TensorSource {
 public:
  // path: a directory, or one .safetensors file.
  explicit SafetensorsDirectory(const std::string& path);
  // Bytes of an element of tensors() as stored, mapped for the lifetime of this object. InputError
  // if the file has been truncated since it was opened.
  std::span<const std::byte> bytes(const SourceTensor& tensor) const;
  std::vector<std::string> files() const override;

 protected:
  void read_elements(size_t number, int64_t begin, const Tensor& destination) const override;

 private:
  void open_indexed(const std::string& index);
  void add_file(const std::string& path);
  std::vector<std::unique_ptr<SafetensorsReader>> readers_;
  struct TensorLocation {
    const SafetensorsReader* reader;
    const SafetensorsEntry* entry;
    int descriptor;  // of its file
    int64_t offset;  // of the tensor in that file
  };
  std::vector<TensorLocation> locations_;
  struct Descriptors {
    ~Descriptors();
    std::vector<int> all;
  };
  Descriptors descriptors_;  // one per reader
};

// Whether `path` has such weights: a directory with model.safetensors or the index, or a file that
// ends in .safetensors.
bool holds_safetensors(const std::string& path);

}  // namespace trireme
