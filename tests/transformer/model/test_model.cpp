#include <gtest/gtest.h>

#include "transformer/model/model.h"

namespace trireme::test_model {
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

// Positions of a configuration cost no memory before they are used: the report of a long model is
// instant.
TEST(Model, TakesNoMemoryForPositionsBeforeTheyAreUsed) {
  const ModelConfig config = tiny_llama(int64_t{1} << 40);
  const int64_t bytes = allocated_bytes();
  Model model(config, DType::kF32);
  EXPECT_EQ(allocated_bytes(), bytes);
  EXPECT_EQ(parameter_count(config), parameter_count(tiny_llama(8)));
  EXPECT_EQ(model.position_bytes(100), 100 * 4 * 4);
  Ctx ctx(1, "test");
  model.reserve_positions(ctx, 100);
  const int64_t held = allocated_bytes();
  EXPECT_GE(held, bytes + model.position_bytes(100));
  model.reserve_positions(ctx, 50);
  EXPECT_EQ(allocated_bytes(), held) << "it is large enough";
}

// Runs one token at the end of `positions` positions.
void run_one_token(const Model& model, int64_t positions) {
  ParameterStore store(model.parameters(), DType::kF32);
  Ctx ctx(1, "test");
  store.allocate(ctx, false);
  store.initialize(ctx, 1);
  ctx.mode = Mode::kInfer;
  const int32_t id = 3, position = static_cast<int32_t>(positions - 1), cu[2] = {0, 1};
  std::vector<float> logits(static_cast<size_t>(model.config().vocab_size));
  Tokens tokens;
  tokens.count = 1;
  tokens.ids = ConstTensor(&id, DType::kI32, Shape{1});
  tokens.positions = ConstTensor(&position, DType::kI32, Shape{1});
  tokens.position_end = positions;
  tokens.cu_q = ConstTensor(cu, DType::kI32, Shape{2});
  Pass pass{ctx, store, tokens};
  Activation x = model.forward(pass, 0, {}, nullptr, Recompute::kNone);
  model.logits(pass, std::move(x),
               Tensor(logits.data(), DType::kF32, Shape{1, std::ssize(logits)}));
}

TEST(Model, APositionBeyondTheReservedOnesIsAnError) {
  Ctx ctx(1, "test");
  Model model(tiny_llama(64), DType::kF32);
  EXPECT_THROW(run_one_token(model, 1), Error) << "nothing is reserved";
  model.reserve_positions(ctx, 10);
  run_one_token(model, 10);
  try {
    run_one_token(model, 12);
    FAIL() << "a position without a row in the table was taken";
  } catch (const Error& e) {
    const std::string what = e.what();
    EXPECT_NE(what.find("below 12 "), std::string::npos) << what;
    EXPECT_NE(what.find("for 10 "), std::string::npos) << what;
  }
  model.reserve_positions(ctx, 12);
  run_one_token(model, 12);
}

TEST(Model, LearnedPositionsNeedNoTable) {
  ModelConfig config = tiny_llama(16);
  config.learned_positions = true;
  EXPECT_EQ(Model(config, DType::kF32).position_bytes(100), 0);
}

}  // namespace
}  // namespace trireme::test_model
