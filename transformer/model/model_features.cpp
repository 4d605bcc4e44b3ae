#include "transformer/model/model_features.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/core/error.h"

namespace trireme {
namespace {

// "500000", where the shortest form of the number would be "5e+05".
std::string number_text(double number) {
  constexpr double kMaxWhole = 1e15;
  const bool whole = number == std::trunc(number) && std::abs(number) < kMaxWhole;
  return whole ? std::to_string(static_cast<int64_t>(number)) : text(number);
}

const char* scaling_name(RopeType type) {
  switch (type) {
    case RopeType::kDefault: return "no";
    case RopeType::kLinear: return "linear";
    case RopeType::kDynamic: return "dynamic";
    case RopeType::kLlama3: return "llama3";
    case RopeType::kYarn: return "yarn";
    case RopeType::kLongRope: return "longrope";
  }
  TRIREME_UNREACHABLE("rope type ", static_cast<int>(type));
}

std::string positions_feature(const ModelConfig& config) {
  if (config.learned_positions) return concat("learned positions, ", config.max_positions);
  std::string out = concat("rotary positions, base ", number_text(config.rope_theta));
  if (config.local_rope_theta > 0)
    out += concat(" (", number_text(config.local_rope_theta), " in layers with a window)");
  if (config.rope_scaling.type != RopeType::kDefault)
    out += concat(", ", scaling_name(config.rope_scaling.type), " scaling by ",
                  number_text(config.rope_scaling.factor));
  if (config.rotary_dim > 0)
    out += concat(", on ", config.rotary_dim, " of ", config.head_dim, " elements of each head");
  if (config.rope_interleaved) out += ", pairs of neighbouring elements";
  const int64_t without = std::ranges::count(config.rope_layers, 0);
  if (without > 0) out += concat(", none in ", without, " of ", config.num_layers, " layers");
  return out;
}

std::string attention_feature(const ModelConfig& config) {
  const LatentConfig& latent = config.latent;
  if (latent.kv_rank > 0)
    return concat("latent attention, ", config.num_heads, " heads of ", config.head_dim, " (",
                  latent.rope_dim, " rotated), latent of keys and values ", latent.kv_rank,
                  ", of queries ", latent.q_rank > 0 ? std::to_string(latent.q_rank) : "none");
  std::string out = concat(config.num_heads, " attention heads of ", config.head_dim);
  if (config.num_kv_heads != config.num_heads)
    out += concat(", ", config.num_kv_heads, " of keys and values");
  return out;
}

std::string attention_details(const ModelConfig& config) {
  std::string out;
  const auto add = [&](bool present, const std::string& what) {
    if (present) out += concat(out.empty() ? "attention with " : ", ", what);
  };
  add(config.qk_norm, config.qk_norm_whole ? "RMSNorm of all heads of q together, and of k"
                      : config.qk_norm_after_rope
                          ? concat("RMSNorm of each head's q and k, after their rotation",
                                   config.qk_norm_weightless ? ", without weights" : "")
                          : "RMSNorm of each head's q and k");
  add(config.attention_bias, "biases of q, k and v");
  add(config.attention_output_bias, "a bias of o");
  add(config.attention_sinks, "a learned sink in each head's softmax");
  add(config.query_scaling > 0,
      concat("queries ", config.unrotated_scaling > 0 ? "of layers without rotary positions " : "",
             "scaled by their position, beta ", config.query_scaling));
  add(config.attention_scale > 0, concat("softmax scale ", config.attention_scale));
  add(config.attention_soft_cap > 0,
      concat("scores under a soft cap of ", config.attention_soft_cap));
  return out;
}

// "window of 512 tokens in 22 of 26 layers" for each size of a window, and likewise chunks.
void add_windows(const ModelConfig& config, std::vector<std::string>& out) {
  std::map<int64_t, int64_t> layers;  // by window
  for (const int64_t window : config.windows)
    if (window > 0) ++layers[window];
  for (const auto& [window, count] : layers)
    out.push_back(
        concat("window of ", window, " tokens in ", count, " of ", config.num_layers, " layers"));
  if (config.attention_chunk > 0)
    out.push_back(concat("attention in chunks of ", config.attention_chunk, " tokens in ",
                         std::ranges::count(config.chunked_layers, 1), " of ", config.num_layers,
                         " layers"));
}

std::string norm_feature(const ModelConfig& config) {
  return concat(config.layer_norm            ? "LayerNorm with biases"
                : config.zero_centered_gamma ? "RMSNorm by 1 + w"
                                             : "RMSNorm",
                !config.post_norms ? ""
                : config.pre_norms ? " before and after attention and MLP"
                                   : " after attention and MLP, not before");
}

int64_t sparse_layers(const ModelConfig& config) {
  int64_t count = 0;
  for (int64_t l = 0; l < config.num_layers; ++l) count += config.moe.sparse(l) ? 1 : 0;
  return count;
}

// ", gate and up projection limited to 7, gate x sigmoid(1.702 x), times up + 1"
std::string limit_feature(const ModelConfig& config) {
  if (!config.clamped_gate.has_value()) return "";
  const ClampedGate& gate = *config.clamped_gate;
  return concat(", gate and up projection limited to ", gate.limit, ", gate x sigmoid(", gate.slope,
                " x), times up + ", gate.up_offset);
}

void add_mlps(const ModelConfig& config, int64_t sparse, std::vector<std::string>& out) {
  const char* const kind = !config.gated_mlp  ? "MLP with GELU"
                           : config.gelu_gate ? "gated MLP with GELU"
                                              : "gated MLP with SiLU";
  const char* const biases = config.mlp_bias ? ", with biases" : "";
  const std::string limit = limit_feature(config);
  if (sparse < config.num_layers)
    out.push_back(concat(kind, " of width ", config.intermediate_size, biases, limit));
  if (sparse == 0) return;
  const MoeConfig& moe = config.moe;
  std::string experts =
      concat(moe.experts, " experts of width ", moe.intermediate_size, " in ", sparse, " of ",
             config.num_layers, " layers, ", moe.experts_per_token, " per token");
  if (moe.groups > 1) experts += concat(", from ", moe.kept_groups, " of ", moe.groups, " groups");
  if (moe.expert_bias) experts += ", with biases";
  experts += limit;
  out.push_back(std::move(experts));
  out.push_back(concat(moe.sigmoid_scores ? "sigmoid" : "softmax", " scores of experts",
                       moe.normalize_weights ? ", normalized" : "",
                       moe.scaled_inputs ? ", times the experts' inputs" : "",
                       moe.weight_scale == 1 ? std::string() : concat(", times ", moe.weight_scale),
                       moe.selection_bias ? ", selection bias" : "",
                       moe.router_bias ? ", bias of the logits" : "",
                       moe.noisy ? ", noisy gating" : ""));
  if (moe.shared_intermediate_size > 0)
    out.push_back(concat("shared expert of width ", moe.shared_intermediate_size,
                         moe.shared_gate ? " with a gate" : ""));
}

}  // namespace

std::vector<std::string> model_features(const ModelConfig& config) {
  std::vector<std::string> out;
  if (config.embedding_scale != 1)
    out.push_back(concat("embedding times ", config.embedding_scale));
  out.push_back(positions_feature(config));
  out.push_back(norm_feature(config));
  out.push_back(attention_feature(config));
  if (std::string details = attention_details(config); !details.empty())
    out.push_back(std::move(details));
  add_windows(config, out);
  if (config.residual_scale != 1)
    out.push_back(concat("attention and MLP times ", config.residual_scale));
  if (config.logits_divisor != 1)
    out.push_back(concat("logits divided by ", config.logits_divisor));
  if (config.logits_soft_cap > 0)
    out.push_back(concat("logits under a soft cap of ", config.logits_soft_cap));
  add_mlps(config, sparse_layers(config), out);
  if (config.residual_dropout > 0 || config.embedding_dropout > 0 || config.attention_dropout > 0)
    out.push_back(concat("dropout in training: ", config.embedding_dropout, " of the embedding, ",
                         config.attention_dropout, " of attention, ", config.residual_dropout,
                         " of the branches"));
  out.emplace_back(config.tie_word_embeddings ? "head tied to the embedding" : "head of its own");
  if (config.extra_layers > 0)
    out.push_back(concat(config.extra_layers, config.extra_layers == 1 ? " layer" : " layers",
                         " for multi-token prediction, not run"));
  return out;
}

}  // namespace trireme
