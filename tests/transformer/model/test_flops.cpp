#include <gtest/gtest.h>

#include "transformer/model/flops.h"

namespace trireme::test_flops {
namespace {

TEST(Flops, FrozenWeightsHaveNoGradient) {
  ModelConfig m;
  m.family = ModelFamily::kLlama;
  m.vocab_size = 11;
  m.hidden_size = 8;
  m.num_layers = 3;
  m.num_heads = 2;
  m.head_dim = 4;
  m.tie_word_embeddings = false;
  // 11 x 8 of 1000 parameters belong to the embeddings. Causal attention: 6 L H D S.
  const double attention = 6 * 3 * 8 * 16.0;
  EXPECT_DOUBLE_EQ(training_flops_per_token(m, 1000, 16), 6 * 912.0 + attention);
  EXPECT_DOUBLE_EQ(training_flops_per_token(m, 1000, 16, 70), 4 * 912.0 + 6 * 70.0 + attention);
}

TEST(Flops, OfInferenceAreAThirdOfTrainings) {
  ModelConfig m;
  m.family = ModelFamily::kLlama;
  m.vocab_size = 11;
  m.hidden_size = 8;
  m.intermediate_size = 12;
  m.num_layers = 3;
  m.num_heads = 2;
  m.num_kv_heads = 1;
  m.head_dim = 4;
  m.tie_word_embeddings = false;
  const InferenceCost cost = inference_cost(m, 0.5, 4 * 2);
  // A layer: q and o 8 x 8, k and v 8 x 4, three of 8 x 12, two norms of 8. Then a norm and the
  // head.
  const double n = 3 * (2 * 64.0 + 2 * 32 + 3 * 96 + 16) + 8 + 88;
  EXPECT_DOUBLE_EQ(cost.token_flops, 2 * n);
  EXPECT_DOUBLE_EQ(cost.key_flops, 3 * 4 * 8.0);  // a product with the key, one with the value
  EXPECT_DOUBLE_EQ(cost.weight_bytes, (n + 88) / 2);
  EXPECT_DOUBLE_EQ(cost.cached_bytes, 3 * (4 + 4) * 2.0);
}

}  // namespace
}  // namespace trireme::test_flops
