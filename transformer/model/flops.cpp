#include "transformer/model/flops.h"

#include "transformer/model/model.h"

namespace trireme {

namespace {

// Parameters that a token visits: the head's product uses V x C weights, its own or those of the
// tied table.
int64_t passed_parameters(const ModelConfig& config, int64_t parameter_count) {
  int64_t n = parameter_count;
  if (!config.tie_word_embeddings) n -= config.vocab_size * config.hidden_size;
  if (config.learned_positions) n -= config.max_positions * config.hidden_size;
  // A token visits k of the experts.
  const MoeConfig& moe = config.moe;
  const int64_t biases = moe.expert_bias ? 2 * moe.intermediate_size + config.hidden_size : 0;
  const int64_t expert = 3 * config.hidden_size * moe.intermediate_size + biases;
  for (int64_t l = 0; l < config.num_layers; ++l)
    if (moe.sparse(l)) n -= (moe.experts - moe.experts_per_token) * expert;
  return n;
}

// Half for the scores, half for the values, which are narrower than the keys in latent attention.
double attention_width(const ModelConfig& config) {
  const int64_t values = config.latent.kv_rank > 0 ? config.latent.value_dim : config.head_dim;
  return static_cast<double>(config.num_heads * (config.head_dim + values)) / 2;
}

}  // namespace

double training_flops_per_token(const ModelConfig& config, int64_t parameter_count,
                                int64_t sequence_length, int64_t adapter_parameters) {
  const int64_t n = passed_parameters(config, parameter_count);
  double keys = 0;  // visible to a token, averaged over a sequence and summed over the layers
  for (int64_t l = 0; l < config.num_layers; ++l) {
    const auto s = static_cast<double>(sequence_length);
    const double w = config.window(l) > 0 ? static_cast<double>(config.window(l)) : s;
    const double c =
        config.chunked(l) ? std::min(static_cast<double>(config.attention_chunk), s) : s;
    keys += w < s ? w - w * w / (2 * s) : c / 2;
  }
  const double of_weights = adapter_parameters > 0 ? 4.0 : 6.0;
  return of_weights * static_cast<double>(n) + 6.0 * static_cast<double>(adapter_parameters) +
         12.0 * attention_width(config) * keys;
}

InferenceCost inference_cost(const ModelConfig& config, double weight_bytes, int64_t row_bytes) {
  const int64_t n = parameter_count(config);
  const auto layers = static_cast<double>(config.num_layers);
  return {.token_flops = 2.0 * static_cast<double>(passed_parameters(config, n)),
          .key_flops = 4.0 * attention_width(config) * layers,
          .weight_bytes = static_cast<double>(n) * weight_bytes,
          .cached_bytes = 2.0 * layers * static_cast<double>(config.num_kv_heads * row_bytes)};
}

}  // namespace trireme
