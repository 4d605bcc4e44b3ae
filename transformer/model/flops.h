// Model FLOPs and bytes per token, in training and generation, for reports of FLOP/s, MFU and
// memory bandwidth.
#pragma once

#include "transformer/config/model_config.h"

namespace trireme {

inline constexpr const char* kFlopsFormula =
    "6N + 6 L H D S (causal attention; N without input embeddings)";
// With adapters.
inline constexpr const char* kAdapterFlopsFormula =
    "4N + 6A + 6 L H D S (N frozen, A of adapters; causal attention; N without input embeddings)";

// Training FLOPs per token. N counts every parameter that takes part in a matrix product or a norm:
// all except the embedding tables, plus a tied head. From a layer's experts N counts the k that a
// token visits. Attention counts the causal half only; a layer with a window of W < S keys counts W
// - W^2 / 2S instead of S / 2, one with chunks of C < S tokens C / 2. Recomputation does not count.
// Frozen parameters have no weight gradient: with A adapter parameters in total, N counts for its
// two other products. parameter_count: of the whole model, with all experts, without adapters.
// sequence_length: S, in tokens.
double training_flops_per_token(const ModelConfig& config, int64_t parameter_count,
                                int64_t sequence_length, int64_t adapter_parameters = 0);

// Nominal cost of inference, summed over the ranks of one model copy. Layers with a window count as
// if they had none.
struct InferenceCost {
  double token_flops = 0;   // FLOPs of a token's matrix products: 2 N, with N as above
  double key_flops = 0;     // FLOPs of a token's attention to one key, in all layers
  double weight_bytes = 0;  // of all weights, also of experts that no token visits; read every step
  double cached_bytes = 0;  // of one token in the KV cache; written once, read every later step
};
// weight_bytes: bytes per parameter. row_bytes: bytes of one head's key, or value, of a token in
// the KV cache.
InferenceCost inference_cost(const ModelConfig& config, double weight_bytes, int64_t row_bytes);

}  // namespace trireme
