// Round-to-nearest quantization of matrices in third-party formats: the reverse of
// quantized_source.h, which describes the formats.
//
//   fp8    s = max |w| of a block / 448 (1 if all are 0), q = w / s in F8_E4M3
//   gptq   symmetric, inputs in order (no desc_act): for each group of an output
//          s = 2 max |w| / (2^bits - 1) in float16, z = 2^(bits - 1),
//          q = w / s + z rounded, halves to even, from 0 to 2^bits - 1; q = z if s is 0
//
// Products and quotients are in float32.
#pragma once

#include <vector>

#include "engine/io/quantized_source.h"
#include "engine/io/rounding_error.h"

namespace trireme {

// Whether a matrix (out, in) can be quantized by kGptq or kFp8. kGptq: group_size is positive (not
// -1) and divides `in`, and inputs and outputs fill whole int32s (`in` and `out` are multiples of
// 32 / bits). kFp8: the number of elements, one byte each, is a multiple of 4, so that the next
// tensor in the file is aligned.
bool can_quantize(const Quantization& quantization, int64_t out, int64_t in);

// Tensors that store the weight (out, in) of module `name`, in the order of
// MatrixQuantizer::parts().
std::vector<SafetensorsSpec> quantized_parts(const Quantization& quantization,
                                             const std::string& name, int64_t out, int64_t in);

// Quantizes a matrix for which can_quantize() holds, row by row. Keeps the quantized matrix in
// memory and, for fp8, the float32 rows of an incomplete block. The result, including the sums of
// the error, depends neither on the number of threads nor on how many rows are added at a time.
class MatrixQuantizer {
 public:
  // kFp8 and kGptq only.
  MatrixQuantizer(const Quantization& quantization, int64_t out, int64_t in, int threads);
  void add(std::span<const float> rows);  // next whole rows, finite
  // Bytes of each tensor of quantized_parts(); CheckFailed unless all rows have been added.
  const std::vector<std::vector<std::byte>>& parts() const;
  const RoundingError& error() const { return error_; }  // of the rows quantized so far

 private:
  void add_block_rows(std::span<const float> rows);
  RoundingError add_block(std::span<const float> rows, int64_t column_block);
  void add_rows(std::span<const float> rows);
  RoundingError add_row(std::span<const float> row, int64_t number);
  Quantization q_;
  int64_t out_, in_, row_ = 0;
  int threads_;
  std::vector<std::vector<std::byte>> parts_;
  std::vector<float> waiting_;  // rows of an incomplete block
  RoundingError error_;
};

}  // namespace trireme
