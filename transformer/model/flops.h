// Model FLOPs of a token, trained or generated, for throughput in FLOP/s, MFU and the bandwidth
// used.
#pragma once

#include "transformer/config/model_config.h"

namespace trireme {

inline constexpr const char* kFlopsFormula =
    "6N + 6 L H D S (causal attention; N without input embeddings)";
// Beside adapters.
inline constexpr const char* kAdapterFlopsFormula =
    "4N + 6A + 6 L H D S (N frozen, A of adapters; causal attention; N without input embeddings)";

// N counts every parameter that takes part in a matrix product or a norm: all but the embedding
// tables, plus the head where it is tied to one; of a layer's experts only the k that a token
// passes. Attention is counted for the causal half only, in layers with a window of W < S keys for
// W - W^2 / 2S in the place of S / 2; recomputation is not counted. What is frozen has no gradient:
// with adapters of A parameters in all, N counts for its two other products.
double training_flops_per_token(const ModelConfig& config, int64_t parameter_count,
                                int64_t sequence_length, int64_t adapter_parameters = 0);

// What inference costs at least, all ranks together. Layers with a window count as if they had
// none.
struct InferenceCost {
  double token_flops = 0;   // of a token's matrix products: 2 N, with N as above
  double key_flops = 0;     // of a token's attention to one key
  double weight_bytes = 0;  // read once by every step, experts of which no token passes included
  double cached_bytes = 0;  // of one token in the KV cache: written once, read by every later step
};
// weight_bytes: of one parameter; row_bytes: of one head's keys, or values, of a token in the
// cache.
InferenceCost inference_cost(const ModelConfig& config, double weight_bytes, int64_t row_bytes);

}  // namespace trireme
