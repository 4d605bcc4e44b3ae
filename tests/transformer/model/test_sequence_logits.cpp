#include <gtest/gtest.h>

#include "parallel/comm/world.h"
#include "transformer/model/sequence_logits.h"

namespace trireme::test_sequence_logits {
namespace {

ModelConfig tiny_llama() {
  ModelConfig m;
  m.family = ModelFamily::kLlama;
  m.vocab_size = 11;
  m.hidden_size = 8;
  m.intermediate_size = 12;
  m.num_layers = 1;
  m.num_heads = m.num_kv_heads = 2;
  m.head_dim = 4;
  m.max_positions = 16;
  return m;
}

TEST(SequenceLogits, LeaveTheModeUnchanged) {
  run_threads(1, [](Communicator& world) {
    const Groups groups(world, {});
    Ctx ctx(1, "test");
    Model model(tiny_llama(), DType::kF32);
    ParameterStore store(model.parameters(), DType::kF32);
    store.allocate(ctx, false);
    store.initialize(ctx, 1);
    const std::vector<int32_t> ids = {3, 1, 4};
    for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
      ctx.mode = mode;
      EXPECT_THROW(sequence_logits(model, store, ctx, groups, ids), Error) << "no positions";
      EXPECT_EQ(ctx.mode, mode);
    }
    model.reserve_positions(ctx, 3);
    EXPECT_EQ(sequence_logits(model, store, ctx, groups, ids).size(), 3u * 11);
    EXPECT_EQ(ctx.mode, Mode::kEval);
  });
}

}  // namespace
}  // namespace trireme::test_sequence_logits
