// Latent attention computed element by element from its formulas, and the layer run over any layout
// of ranks, for comparison.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "parallel/layout.h"
#include "transformer/config/model_config.h"

namespace trireme::test {

struct LatentCase {
  std::string name;
  ModelConfig config;
  std::vector<int64_t> lengths = {5, 1, 6};  // of the documents
  int64_t tokens() const;
};
// With and without a query latent, rotary pairs of halves and of neighbours, biases, values as wide
// as keys.
std::vector<LatentCase> latent_cases();
LatentCase latent_case(const std::string& name);

// Logical tensors by name: "x" and "dy" (T, C), and the layer's parameters with prefix "layer.".
using NamedValues = std::map<std::string, std::vector<double>>;
NamedValues latent_values(const LatentCase& c);

// y (T, C), by the formulas of transformer/layers/latent_attention.h.
std::vector<double> latent_reference(const LatentCase& c, const NamedValues& values);

struct LatentResult {
  std::vector<double> y, dx;                         // (T, C)
  std::map<std::string, std::vector<double>> grads;  // of whole logical tensors
};
LatentResult run_latent(const LatentCase& c, const ParallelSizes& sizes);

}  // namespace trireme::test
