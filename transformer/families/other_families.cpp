#include "transformer/families/other_families.h"

#include <algorithm>
#include <iterator>

namespace trireme {
namespace {

struct OtherFamily {
  const char* model_type;
  const char* features;
};

constexpr const char* kDeltaNet =
    "Gated DeltaNet (linear attention) in most layers, a gate of the attention's output, and "
    "rotary "
    "positions on a quarter of each head";
constexpr const char* kDeltaNetExperts =
    "Gated DeltaNet (linear attention) in most layers, a gate of the attention's output, rotary "
    "positions on a quarter of each head, and experts";
constexpr const char* kDeltaAttention =
    "Kimi Delta Attention (linear attention) in most layers, latent attention without rotation in "
    "the others, and experts";
constexpr const char* kIndexedLatent =
    "latent attention to keys that an indexer chooses, and experts";
constexpr const char* kGemma3n =
    "four residual streams (AltUp), an embedding for each layer, and layers that share keys and "
    "values";
constexpr const char* kGemma4 =
    "other heads in layers of full attention, rotary positions on a part of these, normalized "
    "values, and capped logits";
constexpr const char* kEncoder =
    "attention to later tokens, norms after the residual add, and learned positions";
constexpr const char* kHalfRotated =
    "rotary positions of neighbouring elements on half of each head";

// By name.
constexpr OtherFamily kOtherFamilies[] = {
    {"apertus", "an MLP without gate whose activation is xIELU, and normalized heads of q and k"},
    {"bert", kEncoder},
    {"chatglm", kHalfRotated},
    {"cohere2",
     "attention and MLP side by side after one LayerNorm, layers without rotary positions, and "
     "scaled logits"},
    {"cohere2_moe",
     "attention and experts side by side after one LayerNorm, layers without rotary positions, and "
     "scaled logits"},
    {"deepseek_v32", kIndexedLatent},
    {"deepseek_v4",
     "one shared head of keys and values with a compressed history, attention sinks, and several "
     "residual streams"},
    {"ernie4_5_moe",
     "rotary positions of neighbouring elements, and experts with softmax scores whose choice a "
     "bias moves"},
    {"falcon_h1", "attention and Mamba-2 side by side in every layer, and scaled activations"},
    {"gemma3n", kGemma3n},
    {"gemma3n_text", kGemma3n},
    {"gemma4", kGemma4},
    {"gemma4_text", kGemma4},
    {"glm4_moe_lite", "latent attention, and experts with sigmoid scores"},
    {"glm_moe_dsa", kIndexedLatent},
    {"granitemoeshared",
     "scaled embeddings, branches, attention and logits, and a shared MLP beside experts"},
    {"granitemoehybrid",
     "layers of Mamba-2 or attention, and scaled embeddings, branches, attention and logits"},
    {"hunyuan_v1_moe", "norms of the heads of q and k after their rotation, and experts"},
    {"kimi_k3", kDeltaAttention},
    {"kimi_linear", kDeltaAttention},
    {"lfm2", "short gated convolutions in place of attention in some layers"},
    {"lfm2_moe", "short gated convolutions in place of attention in some layers, and experts"},
    {"mimo_v2_flash",
     "attention sinks, other heads of keys and values in layers with a window, and experts"},
    {"ministral", "windows in the layers that layer_types names"},
    {"mistral4", "latent attention with queries scaled by their position, and experts"},
    {"modernbert",
     "attention to later tokens, windows of both sides, and no norm before the first attention"},
    {"nemotron-nas", "layers with attention and MLPs of different sizes, or without them"},
    {"nemotron_h",
     "one of Mamba-2, attention without rotary positions, MLP or experts in each layer, and MLPs "
     "without gate whose activation is a squared ReLU"},
    {"qwen3_5", kDeltaNet},
    {"qwen3_5_moe", kDeltaNetExperts},
    {"qwen3_5_moe_text", kDeltaNetExperts},
    {"qwen3_5_text", kDeltaNet},
    {"qwen3_next", kDeltaNetExperts},
    {"starcoder2", "LayerNorm, biases everywhere, and an MLP without gate"},
    {"xlm-roberta", kEncoder}};

}  // namespace

const char* other_family_features(const std::string& model_type) {
  const auto* const found = std::ranges::find_if(
      kOtherFamilies, [&](const OtherFamily& family) { return model_type == family.model_type; });
  return found == std::end(kOtherFamilies) ? nullptr : found->features;
}

}  // namespace trireme
