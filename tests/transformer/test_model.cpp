#include <gtest/gtest.h>

#include "transformer/model.h"

namespace trireme {
namespace {

ModelConfig tiny_llama(int64_t max_positions) {
  ModelConfig m;
  m.family = ModelFamily::kLlama;
  m.vocab_size = 11;
  m.hidden_size = 8;
  m.intermediate_size = 12;
  m.num_layers = 1;
  m.num_heads = m.num_kv_heads = 2;
  m.head_dim = 4;
  m.max_positions = max_positions;
  return m;
}

// What a configuration promises costs nothing before it is used: a report of a long model is instant.
TEST(Model, TakesNoMemoryForPositionsBeforeTheyAreUsed) {
  const ModelConfig config = tiny_llama(int64_t{1} << 40);
  const int64_t bytes = allocated_bytes();
  const Model model(config, DType::kF32);
  EXPECT_EQ(allocated_bytes(), bytes);
  EXPECT_EQ(parameter_count(config), parameter_count(tiny_llama(8)));
  EXPECT_EQ(model.position_bytes(100), 100 * 4 * 4);
  model.reserve_positions(100);
  const int64_t held = allocated_bytes();
  EXPECT_GE(held, bytes + model.position_bytes(100));
  model.reserve_positions(50);
  EXPECT_EQ(allocated_bytes(), held) << "it is large enough";
}

TEST(Model, LearnedPositionsNeedNoTable) {
  ModelConfig config = tiny_llama(16);
  config.family = ModelFamily::kGpt2;
  EXPECT_EQ(Model(config, DType::kF32).position_bytes(100), 0);
}

}  // namespace
}  // namespace trireme
