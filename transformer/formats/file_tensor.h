// The tensors of a file that is written from a model: which parameters each consists of, and its
// rows in the order of the file, read from wherever the model lies.
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
    ParameterPlace place;
  };
  std::string name;
  std::vector<int64_t> shape;
  bool transposed = false;
  bool router = false;
  std::vector<Part> parts;  // in the order of their rows
  int64_t rows() const;     // dimensions before the last together; a vector is a column
  int64_t columns() const;
  int64_t numel() const { return rows() * columns(); }
};

// Where a kind of file has a parameter of a model.
using PlaceOf = std::function<ParameterPlace(const std::string& parameter)>;
// One entry for each tensor of the file, in the order in which the model computes.
std::vector<FileTensor> file_tensors(const ModelConfig& config, const PlaceOf& place);

// The type of a tensor's numbers where the model lies, the widest of its parts'; where they are
// quantised, the source's dtype().
DType file_dtype(const ModelSource& source, const FileTensor& tensor);

// The values of tensors in the file's order, read here while a second thread uses what was read
// before: pieces of whole rows of at most 16 MiB (one row, where it is larger), contiguous, of rank
// 1. Four pieces exist at most.
class PieceStream {
 public:
  using Use = std::function<void(const ConstTensor& values)>;
  PieceStream(const ModelSource& source, const ModelConfig& config);
  // The values of a tensor from number `first` on, as `dtype`. `use` is called in the second
  // thread, after those of all tensors before, until finish() has returned; what it throws is
  // thrown by add() or finish(). After either has thrown, whatever it was, none is called any more.
  void add(const FileTensor& tensor, DType dtype, int64_t first, const Use& use);
  void finish() { behind_.finish(); }

 private:
  void read(const FileTensor& tensor, DType dtype, int64_t first, const Use& use);
  const ModelSource& source_;
  const ModelConfig& config_;
  WriteBehind behind_;
};

// Called with the bytes written and to be written.
using CopyProgress = std::function<void(int64_t done, int64_t total)>;

// What tells two states of a source apart: sizes and times of change of its files, what they say of
// their tensors, and what else decides about the values; as 16 hex digits.
std::string fingerprint(const ModelSource& source);

}  // namespace trireme
