// Mixture-of-experts layer, run forward and backward over any layout of ranks, and its reassembled
// results.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "parallel/comm/world.h"
#include "transformer/layers/moe.h"

namespace trireme::test {

struct MoeCase {
  std::string name;
  ModelConfig config;
  int64_t tokens = 12;       // of a micro-batch, in two samples; there are two micro-batches
  int64_t padding = 0;       // number of padding tokens at the end
  std::vector<double> bias;  // selection bias, where the model has one
};

// Small layers of every family and router.
std::vector<MoeCase> moe_cases();
MoeCase moe_case(const std::string& name);

struct MoeLayout {
  ParallelSizes sizes;
  int64_t bound = 0;  // rows of the expert buffers; 0: default
};

struct MoeResult {
  std::vector<double> y, dx;                         // (micro-batches, tokens, C)
  std::map<std::string, std::vector<double>> grads;  // of whole logical tensors
  std::vector<double> losses;                        // balance, z, importance, load
  int64_t dispatched_bytes = 0;                      // sent over ep by all_to_all, all ranks
  int64_t remote_pairs = 0;                          // over all ranks and micro-batches
  size_t rounds = 0;                                 // maximum over all layers and steps
};

// Runs the layer on logical values: x, dy (micro-batches, tokens, C) from the streams "x", "dy",
// and parameters drawn by name, each plus its entry in `offsets` ("x", or a parameter's name).
MoeResult run_moe(const MoeCase& c, const MoeLayout& layout,
                  const std::map<std::string, std::vector<double>>& offsets = {});

// Value of a logical parameter or of "x", "dy", without offset.
std::vector<double> moe_value(const MoeCase& c, const std::string& name, int64_t size);
inline constexpr int64_t kMoeMicroBatches = 2;

}  // namespace trireme::test
