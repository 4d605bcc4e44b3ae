#include "tests/transformer/formats/peft/peft_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/io/safetensors.h"
#include "tests/support/compare.h"
#include "tests/support/source_folder.h"

namespace trireme::test {

std::string peft_golden() { return source_folder() + "/tests/golden/peft/"; }

std::vector<double> peft_logits(const ModelSource& source, const PeftAdapter* adapter,
                                LoraConfig lora) {
  ModelConfig config = source.config();
  config.residual_dropout = config.embedding_dropout = config.attention_dropout = 0;  // GPT-2's
  if (adapter != nullptr) lora = adapter->lora();
  Model model(config, DType::kF32, Layout{}, split_layers(config.num_layers, 1, {}), lora);
  ParameterStore store(model.parameters(), DType::kF32);
  Ctx ctx(1, "test");
  store.allocate(ctx, false);
  store.initialize(ctx, 3);
  source.load(ctx, model, store);
  source.load_row_norms(ctx, model, store);
  if (adapter != nullptr) {
    adapter->check_adapters(config);
    adapter->load_adapters(ctx, model, store);
  }
  const std::vector<double> ids =
      to_doubles(SafetensorsReader(peft_golden() + "expected.safetensors").tensor("input_ids"));
  const std::vector<int32_t> tokens(ids.begin(), ids.end());
  std::vector<int32_t> positions(tokens.size());
  std::vector<int64_t> rows(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) rows[i] = positions[i] = static_cast<int32_t>(i);
  const int64_t n = std::ssize(tokens);
  const std::vector<int32_t> offsets{0, static_cast<int32_t>(n)};
  Tokens t;
  t.count = n;
  t.ids = ConstTensor(tokens.data(), DType::kI32, Shape{n});
  t.positions = ConstTensor(positions.data(), DType::kI32, Shape{n});
  t.global_index = ConstTensor(rows.data(), DType::kI64, Shape{n});
  t.cu_q = ConstTensor(offsets.data(), DType::kI32, Shape{2});
  t.position_end = t.max_seqlen = n;
  model.reserve_positions(ctx, n);
  Pass pass{ctx, store, t};
  Activation x = model.forward(pass, 0, {}, nullptr, Recompute::kNone);
  const Buffer out("logits", n * config.vocab_size * 4);
  const Tensor y = out.tensor(DType::kF32, Shape{n, config.vocab_size});
  model.logits(pass, std::move(x), y);
  return to_doubles(y);
}

void expect_logits(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  double largest = 0, error = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    largest = std::max(largest, std::abs(want[i]));
    error = std::max(error, std::abs(got[i] - want[i]));
  }
  EXPECT_LT(error, 1e-5 * largest);
}

}  // namespace trireme::test
