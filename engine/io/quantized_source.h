// Third-party checkpoints of quantized weights, read as dequantized numbers.
//
//   fp8    X.weight (out, in) F8_E4M3, X.weight_scale_inv (blocks of rows, blocks of columns) F32:
//          w = q s, one s for a block of weight_block_size (DeepSeek-AI 2024, "DeepSeek-V3",
//          section 3.3)
//   gptq   X.qweight (in bits / 32, out), X.qzeros (groups, out bits / 32),
//          X.scales (groups, out), X.g_idx (in):
//          w[o, i] = s[g, o] (q - z), g = g_idx[i]; the file stores z - 1 in `bits` bits; several
//          numbers in an int32, the lowest bits first (Frantar et al. 2023)
//   awq    X.qweight (in, out / 8), X.qzeros (groups, out / 8), X.scales (groups, out), 4 bits:
//          w[o, i] = s[g, o] (q - z), g = i / group size; the 8 numbers of an int32 are columns 0,
//          2, 4, 6, 1, 3, 5, 7, the lowest bits first (Lin et al. 2024, version "gemm")
//   compressed-tensors (github.com/vllm-project/compressed-tensors, 0.9 and later): X.weight_scale
//          has one scale for block_rows x block_columns weights
//     float, int  X.weight (out, in) F8_E4M3 or I8: w = s q
//     packed      X.weight_packed (out, in bits / 32), X.weight_shape = [out, in] and, if not
//                 symmetric, X.weight_zero_point (out bits / 32, groups), whose int32s store
//                 several outputs: w = s (q - z); the int32s, the lowest bits first, store
//                 q + 2^(bits-1) and z + 2^(bits-1)
//   mxfp4  X_blocks (..., in / 32, 16) U8, X_scales (..., in / 32) U8: blocks of 32 numbers, two
//          in a byte, the even one in the low bits; w = 2^(scale - 127) q with q of E2M1, one of 0,
//          1/2, 1, 3/2, 2, 3, 4, 6 with a sign; a scale of 255 is NaN (Open Compute Project 2023,
//          "OCP Microscaling Formats (MX)", version 1.0). X itself is (..., in).
//
// Products are computed in float32 and rounded once. Unquantized tensors pass unchanged.
#pragma once

#include <memory>

#include "engine/io/safetensors_directory.h"

namespace trireme {

struct Quantization {
  enum class Method { kFp8, kGptq, kAwq, kScaledFloat, kScaledInt, kPackedInt, kMxfp4 };
  Method method = Method::kFp8;
  // Block size of fp8 and compressed-tensors; -1: all rows or columns. kPackedInt: blocks of 1 row.
  int64_t block_rows = 128, block_columns = 128;
  int64_t bits = 4;                     // gptq and kPackedInt: 4 or 8; awq: 4
  bool symmetric = true;                // kPackedInt: no zero points
  int64_t group_size = 128;             // gptq without g_idx, awq; -1: all inputs are one group
  bool stores_unshifted_zeros = false;  // gptq_v2: the file stores z, not z - 1
};

std::string quantization_name(const Quantization& quantization);  // "GPTQ 4 bits"

// Returns a source with X.weight (out, in), or X for mxfp4, in place of the tensors that store X.
// Its read() caches the scales of one matrix and is not thread-safe. InputError if shapes or dtypes
// do not match.
std::unique_ptr<TensorSource> dequantized(std::unique_ptr<SafetensorsDirectory> files,
                                          const Quantization& quantization);

}  // namespace trireme
