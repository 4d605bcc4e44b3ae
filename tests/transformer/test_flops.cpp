#include <gtest/gtest.h>

#include "transformer/flops.h"

namespace trireme {
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
  // Of 1000 parameters 11 x 8 are the embeddings'. Causal attention: 6 L H D S.
  const double attention = 6 * 3 * 8 * 16.0;
  EXPECT_DOUBLE_EQ(training_flops_per_token(m, 1000, 16), 6 * 912.0 + attention);
  EXPECT_DOUBLE_EQ(training_flops_per_token(m, 1000, 16, 70), 4 * 912.0 + 6 * 70.0 + attention);
}

}  // namespace
}  // namespace trireme
