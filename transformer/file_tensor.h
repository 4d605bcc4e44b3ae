// The tensors of a file that is written from a model: which parameters each consists of, and its rows in the
// order of the file, read from wherever the model lies.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "transformer/model_source.h"

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

// The type of a tensor's numbers where the model lies, the widest of its parts'; where they are quantised, the
// source's dtype().
DType file_dtype(const ModelSource& source, const FileTensor& tensor);

// Calls use(values) for all values of a tensor in the file's order, in pieces of whole rows of at most 64 MiB
// (one row, where it is larger): contiguous tensors of rank 1 and `dtype`.
void for_each_piece(const ModelSource& source, const ModelConfig& config, const FileTensor& tensor,
                    DType dtype, const std::function<void(const ConstTensor& values)>& use);

// Called with the bytes written and to be written.
using CopyProgress = std::function<void(int64_t done, int64_t total)>;

// What tells two states of a source's files apart: their sizes and times of change, as 16 hex digits.
std::string fingerprint(const ModelSource& source);

}  // namespace trireme
