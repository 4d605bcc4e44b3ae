// Tensors of an exported file: the parameters that make up each one, and its rows in file order,
// read from any ModelSource.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/io/write_behind.h"
#include "transformer/formats/model_source.h"

namespace trireme {

struct FileTensor {
  struct Part {
    ModelParameter parameter;
    ParameterMapping place;
  };
  std::string name;
  std::vector<int64_t> shape;
  bool transposed = false;  // HfSource::transposed, also of each matrix of a stack
  bool selection_bias = false;
  std::vector<Part> parts;  // sorted by first row, except matrices of a stack
  int64_t rows() const;     // product of the dimensions before the last; a vector is one column
  int64_t columns() const;
  int64_t numel() const { return rows() * columns(); }
};

// Mapping from a model's parameter to its tensor and rows in a file format.
using MappingOf = std::function<ParameterMapping(const std::string& parameter)>;
// Returns one entry for each tensor of the file, in the order of model_parameters(), without
// multi-token prediction layers.
std::vector<FileTensor> file_tensors(const ModelConfig& config, const MappingOf& place);

// Returns the smallest dtype that represents the values of all parts of the tensor in the source;
// quantized parts count as the source's dtype().
DType file_dtype(const ModelSource& source, const FileTensor& tensor);

// Stream of the values of tensors in file order: the calling thread reads while a second thread
// consumes the pieces read before. Pieces are whole rows (the first may start inside a row), at
// most 16 MiB or one row if that is larger, contiguous, of rank 1. At most four pieces exist at a
// time.
class PieceStream {
 public:
  using Use = std::function<void(const ConstTensor& values)>;
  // source and config must outlive the stream.
  PieceStream(const ModelSource& source, const ModelConfig& config);
  // Streams the values of a tensor from element `first` on, converted to `dtype`. The second thread
  // calls `use` for each piece, tensors in the order of add(); finish() returns after the last
  // call. add() or finish() rethrows an exception of `use`; add() also throws if the source cannot
  // be read. After either has thrown, `use` is not called again.
  void add(const FileTensor& tensor, DType dtype, int64_t first, const Use& use);
  void finish() { behind_.finish(); }

 private:
  void read(const FileTensor& tensor, DType dtype, int64_t first, const Use& use);
  const ModelSource& source_;
  const ModelConfig& config_;
  WriteBehind behind_;
};

// Called with the bytes written so far and in total.
using CopyProgress = std::function<void(int64_t done, int64_t total)>;

// Fingerprint of a source, as 16 hex digits: paths, sizes and modification times of its files,
// names, dtypes and shapes of their tensors, and settings().
std::string fingerprint(const ModelSource& source);

}  // namespace trireme
