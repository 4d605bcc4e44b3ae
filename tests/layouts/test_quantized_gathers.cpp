// Quantized gathers of ZeRO stage 3: the numbers do not depend on the layout, and are those of a
// model that computes with decoded weights (docs/design/zero.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "parallel/outer/quantized_tile_code.h"
#include "tests/layouts/resumed_run.h"
#include "tests/support/compare.h"
#include "tests/support/scratch_directory.h"

namespace trireme::test::test_quantized_gathers {
namespace {

WeightCompressionConfig quantized(int bits = 8) {
  return {.enabled = true, .bits = bits, .block = 8, .min_bytes = 150};
}

LayoutCase sharded(const LayoutCase& c, int bits = 8) {
  LayoutCase of = c;
  of.zero = 3;
  of.weights = quantized(bits);
  return of;
}

LayoutResult train(const LayoutCase& c, bool exact = false) {
  RunConfig config = config_of(c);
  config.train_steps = 3;
  config.weight_compression.enabled = !exact;
  return run_training(config, c.packed, {});
}

LayoutCase one_rank(const LayoutCase& c) { return sharded(reference_of(c), c.weights.bits); }

std::vector<LayoutCase> layouts() {
  LayoutCase zero_bubble = layout(2, 1, 2, 1), recomputed = layout(2, 2, 1, 1);
  zero_bubble.schedule = "zb_h1";
  recomputed.recompute = Recompute::kFull;
  return {layout(2, 1, 1, 1), layout(4, 1, 1, 1),          layout(8, 1, 1, 1), layout(1, 2, 1, 2),
          layout(2, 1, 2, 1), layout(2, 2, 1, 2, 0, true), zero_bubble,        recomputed};
}

TEST(QuantizedGathers, NumbersDoNotDependOnTheLayout) {
  for (const LayoutCase& c : layouts())
    for (const bool llama : {true, false}) {  // GPT-2: tied table on two stages, biases
      LayoutCase of_model = sharded(c, llama ? 8 : 4);
      of_model.llama = llama;
      EXPECT_EQ(layout_difference(train(of_model), train(one_rank(of_model)), c.dtype), "")
          << of_model.name();
    }
}

TEST(QuantizedGathers, NumbersDoNotDependOnHowExpertsAreDivided) {
  LayoutCase c = sharded(layout(2, 2, 1, 1, 0, true));
  c.experts = "mixtral";
  EXPECT_EQ(layout_difference(train(c), train(one_rank(c)), c.dtype), "");
  c.sizes.ep = 2;
  EXPECT_EQ(layout_difference(train(c), train(one_rank(c)), c.dtype), "");
}

TEST(QuantizedGathers, FrozenWeightsAreQuantizedToo) {
  const auto run_adapters = [](const LayoutCase& c) {
    RunConfig config = config_of(c);
    config.train_steps = 3;
    config.finetune.lora = {.rank = 4, .alpha = 8, .targets = {"q_proj", "down_proj"}};
    return run_training(config, false, {});
  };
  const LayoutCase c = sharded(layout(4, 1, 1, 1));
  EXPECT_EQ(layout_difference(run_adapters(c), run_adapters(one_rank(c)), c.dtype), "");
}

// decode(encode(w)) of each parameter, from the formulas of block_code.h. One rank, float64.
void decode_in_place(const ParameterStore& store, const WeightCompressionConfig& config) {
  for (ParamHandle h = 0; h < std::ssize(store.specs()); ++h) {
    const ParameterSpec& spec = store.specs()[static_cast<size_t>(h)];
    if (spec.shape.numel() * 4 < config.min_bytes) continue;
    const std::span<double> values(store.value(h).as<double>(),
                                   static_cast<size_t>(spec.shape.numel()));
    const auto columns = static_cast<size_t>(spec.shape[spec.shape.rank() - 1]);
    const auto block = static_cast<size_t>(config.block);
    for (size_t row = 0; row < values.size(); row += columns)
      for (size_t at = 0; at < columns; at += block) {
        const auto part = values.subspan(row + at, std::min(block, columns - at));
        double largest = 0;
        for (const double v : part) largest = std::max(largest, std::abs(v));
        const auto scale = static_cast<float>(largest / (config.bits == 8 ? 127 : 7));
        for (double& v : part) v = scale == 0 ? 0 : std::nearbyint(v * (1 / double{scale})) * scale;
      }
  }
}

RunConfig without_decay(const LayoutCase& c) {
  RunConfig config = config_of(c);
  config.train_steps = 4;
  config.optimizer.lr = 0.01;
  config.optimizer.weight_decay = 0;  // updates that do not depend on the weights
  return config;
}

// A run without ZeRO whose weights are replaced by decoded ones before each step, and which adds
// the update to the exact weights after it, is the same run.
TEST(QuantizedGathers, StepsAreThoseOfDecodedWeights) {
  for (const int bits : {8, 4}) {
    const LayoutCase c = sharded(layout(4, 1, 1, 1), bits);
    const LayoutResult got = run_training(without_decay(c), false, {});
    std::vector<double> losses;
    std::map<std::string, std::vector<double>> weights;
    RunConfig whole = without_decay(reference_of(c));
    whole.weight_compression.enabled = false;
    on_ranks(whole, {}, [&](LayoutRank& rank) {
      const ParameterStore& store = rank.state.store;
      const Tensor values = store.flat_values();
      const std::span<double> all(values.as<double>(), static_cast<size_t>(values.numel()));
      std::vector<double> exact(all.begin(), all.end());
      for (int64_t step = 0; step < 4; ++step) {
        decode_in_place(store, c.weights);
        const std::vector<double> decoded(all.begin(), all.end());
        losses.push_back(rank.train(step, false).loss);
        for (size_t i = 0; i < exact.size(); ++i) exact[i] += all[i] - decoded[i];
        std::ranges::copy(exact, all.begin());
      }
      place_owned(store, values, store.value_map(), weights);
    });
    for (size_t step = 0; step < 4; ++step)
      EXPECT_NEAR(got.losses[step], losses[step], 1e-9) << bits << " bits, step " << step;
    ASSERT_EQ(got.parameters.size(), weights.size());
    for (const auto& [name, values] : got.parameters)
      for (size_t i = 0; i < values.size(); ++i)
        ASSERT_NEAR(values[i], weights.at(name)[i], 1e-9) << name << " " << i;
  }
}

// The comparisons above would see exact weights.
TEST(QuantizedGathers, ExactWeightsAreOtherNumbers) {
  const LayoutCase c = sharded(layout(2, 1, 1, 1));
  EXPECT_NE(layout_difference(train(c), train(c, true), c.dtype), "");
  LayoutCase nothing = c;
  nothing.weights.min_bytes = 1 << 20;
  EXPECT_EQ(layout_difference(train(nothing), train(c, true), c.dtype), "");
}

// Sum over a step's gathers of N (N - 1) times the message of a tile.
TEST(QuantizedGathers, TrafficIsTheFormula) {
  for (const int n : {2, 3, 4})
    for (const int bits : {8, 4}) {
      LayoutCase c = sharded(layout(n, 1, 1, 1), bits);
      c.dtype = DType::kF32;
      RunConfig config = config_of(c);
      config.train_batch_size = n;
      config.gradient_accumulation_steps = 1;
      config.train_steps = 1;
      LayoutRunOptions ring;
      ring.comm.algorithm = CommAlgorithm::kRing;
      const Traffic got = run_training(config, false, ring).data_traffic;
      int64_t want = 0;
      on_ranks(config, {}, [&](LayoutRank& rank) {
        if (rank.world.rank() != 0) return;
        const ParameterStore& store = rank.state.store;
        for (const Tile& tile : store.tiles()) {
          const bool once = tile.block == 0 || tile.block == store.blocks() - 1;
          const QuantizedTileCode code(store, tile, config.weight_compression);
          want += (once ? 1 : 2) * int64_t{n} * (n - 1) * code.message_bytes();
        }
      });
      EXPECT_EQ(got[CommKind::kAllGather].sent_bytes, want) << n << " ranks, " << bits << " bits";
    }
}

TEST(QuantizedGathers, PrefetchDoesNotChangeABit) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    LayoutCase c = sharded(layout(4, 1, 1, 1));
    c.dtype = dtype;
    RunConfig config = config_of(c);
    config.train_steps = 3;
    const LayoutResult one = run_training(config, false, {});
    config.zero.prefetch = config.comm.overlap = false;
    const LayoutResult other = run_training(config, false, {});
    EXPECT_TRUE(one.parameters == other.parameters);
    EXPECT_EQ(one.losses, other.losses);
    EXPECT_EQ(one.replica, "");
  }
}

TEST(QuantizedGathers, ResumesBitForBit) {
  LayoutCase c = sharded(layout(2, 1, 2, 1), 4);
  c.llama = false;
  const ScratchDirectory scratch;
  const RunPart straight = run_part(c, 0, 4, "", "");
  run_part(c, 0, 2, "", scratch.path());
  EXPECT_TRUE(run_part(c, 2, 4, scratch.path(), "").tensors == straight.tensors);
  LayoutCase other = sharded(layout(4, 1, 1, 1), 4);
  other.llama = false;
  const RunPart moved = run_part(other, 2, 4, scratch.path(), "");
  for (size_t step = 0; step < 2; ++step)
    EXPECT_NEAR(moved.losses[step], straight.losses[2 + step], 1e-9);
}

}  // namespace
}  // namespace trireme::test::test_quantized_gathers
