#include <gtest/gtest.h>

#include "engine/core/memory.h"
#include "training/run/memory_plan.h"

namespace trireme::test_memory_plan {
namespace {

ModelConfig small(int64_t layers) {
  ModelConfig m;
  m.family = ModelFamily::kLlama;
  m.vocab_size = 61;
  m.hidden_size = 32;
  m.intermediate_size = 48;
  m.num_layers = layers;
  m.num_heads = 4;
  m.num_kv_heads = 2;
  m.head_dim = 8;
  m.max_positions = 64;
  return m;
}

TEST(MemoryPlan, IsMadeWithoutTheMemory) {
  const ModelConfig model = small(2);
  const int64_t held = allocated_bytes();
  const TrainingMemory wide = plan_training_memory(model, DType::kF32, 16);
  EXPECT_EQ(allocated_bytes(), held);
  const int64_t elements = wide.parameters / 4;  // with padding
  EXPECT_GE(elements, parameter_count(model));
  EXPECT_LT(elements, parameter_count(model) * 11 / 10);
  EXPECT_EQ(wide.gradients, 4 * elements);
  EXPECT_EQ(wide.optimizer, 8 * elements);
  const TrainingMemory half = plan_training_memory(model, DType::kBF16, 16);
  EXPECT_EQ(half.parameters, 2 * elements);
  EXPECT_EQ(half.gradients, 4 * elements);
  EXPECT_EQ(half.optimizer, 12 * elements);  // and master weights
  EXPECT_GT(wide.activations, half.activations);
  EXPECT_GT(plan_training_memory(model, DType::kF32, 32).activations, wide.activations);
}

TEST(MemoryPlan, AbsurdSizesHaveNoPlanOfActivations) {
  ModelConfig wide = small(1);
  wide.num_heads = wide.num_kv_heads = 1 << 20;
  wide.head_dim = 1 << 20;
  for (const ModelConfig& model : {small(kMaxPlannedLayers + 1), wide}) {
    const TrainingMemory memory = plan_training_memory(model, DType::kF32, 8);
    EXPECT_EQ(memory.activations, -1);
    EXPECT_GT(memory.optimizer, 0);
  }
}

}  // namespace
}  // namespace trireme::test_memory_plan
