// Settings of compression: options of a compressor, and the tensors that it compresses.
#pragma once

#include <cstdint>
#include <string>

namespace trireme {

// Options of all methods; each uses some of them (CompressorRow::options in
// parallel/outer/compressors/compressors.h).
struct CompressionOptions {
  std::string method = "quantize";
  int bits = 8;         // of an element: 8, 4 or 1
  double ratio = 0.01;  // of the elements that are sent, in (0, 1]
  int rank = 4;         // of the matrices that are sent, 1 to kMaxPowerSgdRank
  int64_t block = 0;    // elements of a row; 0: the default of the method
};

// Ranks between which sums are compressed; inside of them they are exact.
enum class CompressionScope {
  kReplicas,  // replicas of the model
  kNodes,     // (virtual) nodes: several replicas, or parts of one
};

struct CompressionConfig {
  bool enabled = false;
  CompressionOptions options = {};
  bool error_feedback = true;
  int64_t min_bytes = 1 << 16;  // smaller logical tensors are sent as they are
};

struct GradientCompressionConfig : CompressionConfig {
  CompressionScope scope = CompressionScope::kReplicas;
  int64_t warmup_steps = 0;  // first steps of the run, in which sums are exact
  // Decay rate of the first moment that is exchanged in place of gradients; 0: gradients.
  double moment_beta = 0;
};

// Quantization of the weights that ZeRO stage 3 gathers.
struct WeightCompressionConfig {
  bool enabled = false;
  int bits = 8;                 // of an element: 8 or 4
  int64_t block = 256;          // elements of a row
  int64_t min_bytes = 1 << 16;  // smaller logical tensors are sent as they are
};

}  // namespace trireme
