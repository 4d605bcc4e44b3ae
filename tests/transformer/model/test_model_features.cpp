#include <gtest/gtest.h>

#include <algorithm>

#include "engine/core/error.h"
#include "tests/support/source_folder.h"
#include "transformer/formats/load_config.h"
#include "transformer/model/model_features.h"

namespace trireme::test_model_features {
namespace {

using Features = std::vector<std::string>;

Features features_of(const std::string& published) {
  return model_features(
      read_third_party_config(concat(test::source_folder(),
                                     "/tests/transformer/families/published/", published, ".json"))
          .config);
}

TEST(ModelFeatures, PublishedModels) {
  EXPECT_EQ(
      features_of("distilgpt2"),
      (Features{"learned positions, 1024", "LayerNorm with biases", "12 attention heads of 64",
                "attention with biases of q, k and v, a bias of o",
                "MLP with GELU of width 3072, with biases",
                "dropout in training: 0.1 of the embedding, 0.1 of attention, 0.1 of the "
                "branches",
                "head tied to the embedding"}));
  EXPECT_EQ(features_of("llama-3.1-8b-instruct"),
            (Features{"rotary positions, base 500000, llama3 scaling by 8", "RMSNorm",
                      "32 attention heads of 128, 8 of keys and values",
                      "gated MLP with SiLU of width 14336", "head of its own"}));
  EXPECT_EQ(features_of("gemma-3-1b").at(5), "window of 512 tokens in 22 of 26 layers");
  EXPECT_EQ(features_of("gemma-3-1b").at(1),
            "rotary positions, base 1000000 (10000 in layers with a window)");
  EXPECT_EQ(features_of("gemma-3-1b").at(2), "RMSNorm by 1 + w before and after attention and MLP");
}

TEST(ModelFeatures, ScalesAndLayersWithoutPositions) {
  const Features granite = features_of("granite-3.3-8b");
  for (const char* one :
       {"embedding times 12", "attention and MLP times 0.22", "logits divided by 16"})
    EXPECT_NE(std::ranges::find(granite, one), granite.end()) << one;
  const Features gemma2 = features_of("gemma-2-9b");
  for (const char* one :
       {"attention with softmax scale 0.0625, scores under a soft cap of 50",
        "logits under a soft cap of 30", "window of 4096 tokens in 21 of 42 layers"})
    EXPECT_NE(std::ranges::find(gemma2, one), gemma2.end()) << one;
  EXPECT_EQ(features_of("smollm3-3b").at(0),
            "rotary positions, base 5000000, none in 9 of 36 layers");
}

TEST(ModelFeatures, NormsAndPartsOfTheHead) {
  EXPECT_EQ(features_of("glm-4-9b").at(0),
            "rotary positions, base 10000, on 64 of 128 elements of each head, pairs of "
            "neighbouring elements");
  const Features olmo = features_of("olmo-2-7b");
  EXPECT_EQ(olmo.at(1), "RMSNorm after attention and MLP, not before");
  EXPECT_EQ(olmo.at(3), "attention with RMSNorm of all heads of q together, and of k");
}

TEST(ModelFeatures, LatentAttentionAndExperts) {
  const Features features = features_of("deepseek-v3");
  const Features expected = {
      "rotary positions, base 10000, yarn scaling by 40, pairs of neighbouring elements",
      "latent attention, 128 heads of 192 (64 rotated), latent of keys and values 512, of queries "
      "1536",
      "gated MLP with SiLU of width 18432",
      "256 experts of width 2048 in 58 of 61 layers, 8 per token, from 4 of 8 groups",
      "sigmoid scores of experts, normalized, times 2.5, selection bias",
      "shared expert of width 2048",
      "1 layer for multi-token prediction, not run"};
  for (const std::string& one : expected)
    EXPECT_NE(std::ranges::find(features, one), features.end()) << one;
  EXPECT_EQ(features_of("qwen3-30b-a3b").at(4),
            "128 experts of width 768 in 48 of 48 layers, 8 per token");
}

}  // namespace
}  // namespace trireme::test_model_features
