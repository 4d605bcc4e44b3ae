#include "transformer/flops.h"

namespace trireme {

double training_flops_per_token(const ModelConfig& config, int64_t parameter_count,
                                int64_t sequence_length, int64_t adapter_parameters) {
  int64_t n = parameter_count;
  // The head's product uses V x C weights: its own, or the tied table's.
  if (!config.tie_word_embeddings) n -= config.vocab_size * config.hidden_size;
  if (config.learned_positions) n -= config.max_positions * config.hidden_size;
  // A token passes k of the experts.
  for (int64_t l = 0; l < config.num_layers; ++l)
    if (config.moe.sparse(l))
      n -= (config.moe.experts - config.moe.experts_per_token) * 3 * config.hidden_size *
           config.moe.intermediate_size;
  double keys = 0;  // that a token sees, on average over a sequence and summed over the layers
  for (int64_t l = 0; l < config.num_layers; ++l) {
    const auto s = static_cast<double>(sequence_length);
    const double w = config.window(l) > 0 ? static_cast<double>(config.window(l)) : s;
    keys += w < s ? w - w * w / (2 * s) : s / 2;
  }
  // Half for the scores, half for the values, which latent attention has narrower than its keys.
  const int64_t values = config.latent.kv_rank > 0 ? config.latent.value_dim : config.head_dim;
  const double width = static_cast<double>(config.num_heads * (config.head_dim + values)) / 2;
  const double of_weights = adapter_parameters > 0 ? 4.0 : 6.0;
  return of_weights * static_cast<double>(n) + 6.0 * static_cast<double>(adapter_parameters) +
         12.0 * width * keys;
}

}  // namespace trireme
