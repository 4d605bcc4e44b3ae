// The algorithms of a GPU's matrix products, chosen by time once and kept for later runs: then they
// are the same again, and so are the bits.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

namespace trireme {

struct GemmAlgorithms {
  // Shape, strides, types and alignments, as engine/ops/cuda/blas_lt.cpp packs them.
  using Product = std::array<int64_t, 8>;
  struct Choice {
    std::array<uint64_t, 8> algorithm = {};  // the library's own record
    bool bias_first = false;                 // the bias is written, and the product added to it
    bool operator==(const Choice&) const = default;
  };
  // "NVIDIA H200", "cuBLASLt 13.1.0": an algorithm means nothing elsewhere.
  std::string device, version;
  std::map<Product, Choice> chosen = {};
};

// One line for each product, after three that say what this is, of which device and library.
std::string gemm_algorithms_text(const GemmAlgorithms& algorithms);
// InputError with `path` and the line where the text is no such file.
GemmAlgorithms read_gemm_algorithms(const std::string& text, const std::string& path);

}  // namespace trireme
