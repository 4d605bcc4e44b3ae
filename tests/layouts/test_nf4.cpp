// QLoRA: a frozen model in 4 bits with adapters gives the results of a model with the dequantized
// weights, the same in every layout, in the expected memory.
#include <gtest/gtest.h>

#include "engine/ops/quantized/nf4.h"
#include "engine/ops/rows/transfer.h"
#include "tests/layouts/finite_differences.h"

namespace trireme::test::test_nf4 {
namespace {

// The inputs of every linear layer are whole blocks on each of 4 tensor-parallel ranks.
RunConfig config_with(const LayoutCase& c, bool packed, bool doubled) {
  RunConfig config = config_of(c);
  ModelConfig& model = config.model;
  model.hidden_size = 128;
  model.head_dim = 32;
  model.intermediate_size = 256;
  model.num_layers = 4;
  if (!c.experts.empty()) model.moe.intermediate_size = model.moe.shared_intermediate_size = 128;
  config.train_steps = 2;
  config.finetune.lora = {.rank = 3, .alpha = 8, .targets = {"all-linear"}};
  config.finetune.base_quantization = {packed, doubled};
  config.optimizer.lr = 0.05;  // B starts at zero, and A then has no gradient
  return config;
}

std::vector<LayoutCase> layouts(bool experts) {
  std::vector<LayoutCase> out;
  const auto add = [&](auto&& change) {
    LayoutCase c;
    if (experts) c.experts = "qwen2_moe";
    change(c);
    out.push_back(c);
  };
  if (experts) {
    add([](LayoutCase& c) {
      c.sizes.dp = c.sizes.ep = c.sizes.tp = 2;
      c.zero = 3;
    });
    add([](LayoutCase& c) { c.sizes.tp = c.sizes.etp = 2; });
    return out;
  }
  add([](LayoutCase& c) { c.sizes.tp = 2; });
  add([](LayoutCase& c) {
    c.sizes.tp = 4;
    c.sizes.sequence_parallel = true;
  });
  add([](LayoutCase& c) {
    c.sizes.tp = 2;
    c.sizes.sequence_parallel = true;
    c.sizes.tp_comm_overlap = Overlap::kOn;
    c.recompute = Recompute::kFull;
  });
  add([](LayoutCase& c) {
    c.sizes.pp = c.sizes.tp = 2;
    c.schedule = "zb_h1";
  });
  add([](LayoutCase& c) { c.sizes.cp = c.sizes.tp = 2; });
  for (const int stage : {0, 1, 2, 3})
    add([&](LayoutCase& c) {
      c.sizes.dp = 2;
      c.zero = stage;
      c.recompute = stage == 3 ? Recompute::kFull : Recompute::kSelective;
    });
  return out;
}

void expect_same(bool experts, bool doubled, bool magnitudes = false) {
  LayoutCase one;
  if (experts) one.experts = "qwen2_moe";
  const auto config_for = [&](const LayoutCase& c) {
    RunConfig config = config_with(c, true, doubled);
    config.finetune.lora.dora = magnitudes;
    return config;
  };
  const LayoutResult whole = run_training(config_for(one), false, {});
  double moved = 0;
  for (const auto& [name, gradient] : whole.gradients.back())
    for (const double g : gradient) moved += g * g;
  EXPECT_GT(moved, 0);
  for (const LayoutCase& c : layouts(experts)) {
    const LayoutResult got = run_training(config_for(c), false, {});
    EXPECT_EQ(layout_difference(got, whole, DType::kF64), "") << c.name();
  }
}

TEST(Nf4Base, EveryLayoutTrainsTheSameAdapters) { expect_same(false, false); }
TEST(Nf4Base, SecondScalesDoNotDependOnTheLayout) { expect_same(false, true); }
TEST(Nf4Base, BesideMagnitudes) { expect_same(false, true, true); }
TEST(Nf4Base, Experts) {
  for (const bool doubled : {false, true}) expect_same(true, doubled);
}

struct Trained {
  std::vector<double> losses;
  std::vector<uint8_t> gradients;
};

// Trains on one rank; `change` runs between initialization and the first step.
Trained train(const RunConfig& config, const std::function<void(LayoutRank&)>& change) {
  Trained out;
  on_ranks(config, {}, [&](LayoutRank& rank) {
    change(rank);
    for (int64_t s = 0; s < config.train_steps; ++s)
      out.losses.push_back(rank.train(s, false).loss);
    const Tensor gradients = rank.state.store.flat_gradients();
    const auto* const bytes = static_cast<const uint8_t*>(gradients.raw());
    out.gradients.assign(bytes, bytes + gradients.bytes());
  });
  return out;
}

// Forward and backward equal those of the same layers with dequantized weights.
TEST(Nf4Base, ComputesWithWhatTheBitsStandFor) {
  for (const char* experts : {"", "qwen2_moe"})
    for (const DType dtype : {DType::kF64, DType::kBF16}) {
      LayoutCase c;
      c.experts = experts;
      c.dtype = dtype;
      std::vector<Buffer> weights;  // of each handle
      const Trained packed = train(config_with(c, true, true), [&](LayoutRank& rank) {
        const ParameterStore& store = rank.state.store;
        for (ParamHandle h = 0; h < std::ssize(store.specs()); ++h) {
          const Shape shape = store.shape(h, h);
          weights.emplace_back("weight", shape.numel() * dtype_size(dtype));
          if (store.packed(h)) store.unpack(rank.ctx, h, h, weights.back().tensor(dtype, shape));
        }
      });
      int changed = 0;
      const Trained plain = train(config_with(c, false, false), [&](LayoutRank& rank) {
        const ParameterStore& store = rank.state.store;
        for (ParamHandle h = 0; h < std::ssize(store.specs()); ++h) {
          const ParameterSpec& spec = store.specs()[static_cast<size_t>(h)];
          if (!spec.linear || store.trained(h)) continue;
          transfer(rank.ctx, store.value(h),
                   weights[static_cast<size_t>(h)].tensor(dtype, store.shape(h, h)));
          ++changed;
        }
      });
      EXPECT_GT(changed, 20);
      EXPECT_EQ(packed.losses, plain.losses) << dtype_name(dtype) << " " << experts;
      EXPECT_EQ(packed.gradients, plain.gradients) << dtype_name(dtype) << " " << experts;
      const Trained as_they_were = train(config_with(c, false, false), [](LayoutRank&) {});
      EXPECT_NE(packed.losses, as_they_were.losses) << "the test would not notice";
    }
}

// The gradient of the second step against differences of its loss: the gradients of the first
// layers' adapters have passed through the input gradients of the layers above.
TEST(Nf4Base, FiniteDifferences) {
  const auto in_first_layer = [](const ParameterSpec& spec) {
    return spec.name.find("layers.0.") != std::string::npos;
  };
  EXPECT_EQ(expect_slopes(config_with({}, true, true), {.chosen = in_first_layer}), 14);
}

// Memory of a weight: its codes and their scales; weights are unpacked one at a time.
TEST(Nf4Base, TakesHalfAByteAWeight) {
  const auto held = [](bool packed, bool doubled) {
    LayoutCase c;
    c.dtype = DType::kF32;
    RunConfig config = config_with(c, packed, doubled);
    config.model.vocab_size = 16;
    int64_t bytes = 0, elements = 0, in_bits = 0;
    on_ranks(config, {}, [&](LayoutRank& rank) {
      rank.train(0, false);
      bytes = allocated_bytes() - rank.ctx.arena.capacity();
      in_bits = rank.state.store.packed_bytes();
      for (const ParameterSpec& spec : rank.state.store.specs())
        if (spec.linear) elements += spec.local_shape().numel();
    });
    return std::array<int64_t, 3>{bytes, elements, in_bits};
  };
  const auto [plain, elements, none] = held(false, false);
  EXPECT_EQ(none, 0);
  for (const bool doubled : {false, true}) {
    const auto [bytes, count, in_bits] = held(true, doubled);
    EXPECT_EQ(count, elements);
    const double each = static_cast<double>(in_bits) / static_cast<double>(elements);
    const double wanted = doubled ? 0.5 + 1.0 / 64 + 4.0 / (64 * 256) : 0.5 + 4.0 / 64;
    EXPECT_GE(each, wanted);
    // Alignment, and groups and offset of small weights, of which there are 7 per layer.
    EXPECT_LT(static_cast<double>(in_bits), wanted * static_cast<double>(elements) + 4 * 7 * 160);
    EXPECT_NEAR(static_cast<double>(plain - bytes), (4 - each) * static_cast<double>(elements),
                0.01 * static_cast<double>(elements));
  }
}

// Only one weight is unpacked at a time, by one of its users: the step's memory does not grow with
// the number of layers.
void expect_one_weight_unpacked(const LoraConfig& lora) {
  LayoutCase c;
  c.recompute = Recompute::kFull;
  const auto capacity = [&](bool packed, int64_t layers) {
    RunConfig config = config_with(c, packed, false);
    config.model.num_layers = layers;
    config.finetune.lora = lora;
    int64_t bytes = 0;
    on_ranks(config, {}, [&](LayoutRank& rank) { bytes = rank.plan.capacity; });
    return bytes;
  };
  const int64_t more = capacity(true, 4) - capacity(false, 4);
  EXPECT_GT(more, 0);
  EXPECT_LE(more, 2 * 256 * 128 * 8 + 4096);  // gate and up in float64
  EXPECT_EQ(capacity(true, 8) - capacity(false, 8), more);
}
TEST(Nf4Base, UnpacksOneWeightAtATime) {
  LoraConfig lora = config_with({}, true, false).finetune.lora;
  expect_one_weight_unpacked(lora);
  lora.dora = true;
  expect_one_weight_unpacked(lora);
  lora.dropout = 0.2;
  expect_one_weight_unpacked(lora);
}

TEST(Nf4Base, RefusesHalfBlocks) {
  LayoutCase c;
  RunConfig config = config_with(c, true, false);
  config.model.intermediate_size = 136;  // the last block of a row is shorter
  EXPECT_GT(run_training(config, false, {}).losses.back(), 0);
  const auto refused = [&](const std::string& says) {
    try {
      run_training(config, false, {});
    } catch (const std::exception& e) {
      EXPECT_NE(std::string(e.what()).find(says), std::string::npos) << e.what();
      return;
    }
    ADD_FAILURE() << "no error: " << says;
  };
  config.parallel.tp = 2;
  refused("not whole blocks of 64");
  config.parallel.tp = 1;
  config.model.intermediate_size = 129;
  refused("odd number");
}

}  // namespace
}  // namespace trireme::test::test_nf4
