// GPU matrix-product algorithms, selected once by timing (autotuning) and kept in a file for later
// runs, which then use the same algorithms and produce the same bits.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "engine/core/device_memory.h"

namespace trireme {

struct GemmAlgorithms {
  // Shape, strides, types and alignments, as packed by key_of() of
  // engine/ops/gemm/blas_lt.cuda.cpp.
  using Product = std::array<int64_t, 8>;
  struct Choice {
    std::array<uint64_t, 8> algorithm = {};  // the library's own record
    bool bias_first = false;                 // writes the bias first and adds the product to it
    bool operator==(const Choice&) const = default;
  };
  // "NVIDIA H200", "cuBLASLt 13.1.0": an algorithm is valid only for these.
  std::string device, version;
  std::map<Product, Choice> chosen = {};
};

// Text of the file: one line per product, after three that identify the file, the device and the
// library.
std::string gemm_algorithms_text(const GemmAlgorithms& algorithms);
// Throws InputError with `path` and the line if the text is not such a file.
GemmAlgorithms read_gemm_algorithms(const std::string& text, const std::string& path);

}  // namespace trireme

namespace trireme::cuda {

struct Context;  // engine/device/context.h

// Returns empty GemmAlgorithms with the names of this device and library.
TRIREME_CUDA_DECL GemmAlgorithms algorithms_of(const Context& gpu);
// Makes later products use the kept algorithms; algorithms of other products are added to them.
// Products that have been computed before keep their plans. `algorithms` must be of this device and
// library (not checked). Not for GemmArgs::varying_rows.
TRIREME_CUDA_DECL void keep_algorithms(Context& gpu, GemmAlgorithms algorithms);
// Algorithms kept so far; null: none are kept.
TRIREME_CUDA_DECL const GemmAlgorithms* kept_algorithms(const Context& gpu);

}  // namespace trireme::cuda
