// Models with block-quantized weights: their logits equal those of a model with the dequantized
// weights, up to the rounding of activations to int8, in every family and with tensor parallelism.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <span>

#include "engine/ops/quantized/quantized_weight.h"
#include "engine/ops/rows/transfer.h"
#include "parallel/comm/world.h"
#include "serving/engine/generate.h"
#include "tests/serving/tiny_model.h"
#include "transformer/pass/sharding.h"

namespace trireme::test_block_format_model {
namespace {

constexpr int64_t kTokens = 24, kSequence = 8;

// Wide enough that two ranks have whole blocks of every weight's inputs.
ModelConfig wide_model(ModelFamily family) {
  ModelConfig c = test::tiny_model(family);
  c.hidden_size = 128;
  c.intermediate_size = 192;
  c.initializer_range = 0.06;
  if (c.moe.experts > 0) c.moe.intermediate_size = 64;
  if (c.moe.shared_intermediate_size > 0) c.moe.shared_intermediate_size = 64;
  if (c.latent.kv_rank > 0) {
    c.latent = {.q_rank = 48, .kv_rank = 40, .nope_dim = 24, .rope_dim = 8, .value_dim = 16};
    c.head_dim = 32;
  } else {
    c.head_dim = 32;
  }
  return c;
}

struct Rank {
  Rank(const ModelConfig& config, Communicator& world, int tp, DType dtype,
       std::optional<BlockFormat> format)
      : groups(world, {.tp = tp}, kv_head_copies(config, tp)),
        ctx(1, "test"),
        model(config, dtype, groups.layout,
              chunks_of(split_layers(config.num_layers, 1, {}), groups.layout.pp)),
        store(model.parameters(), dtype, {}, {.blocks = format}) {
    model.reserve_positions(ctx, config.max_positions);
    store.allocate(ctx, false);
    store.initialize(ctx, 5);
    ctx.mode = Mode::kInfer;
  }
  Groups groups;
  Ctx ctx;
  Model model;
  ParameterStore store;
};

// Logits of three sequences of kSequence tokens.
std::vector<float> logits_of(Rank& rank) {
  std::vector<int32_t> ids(kTokens), positions(kTokens);
  std::vector<int64_t> rows(kTokens);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * 11 % 37);
  for (size_t i = 0; i < positions.size(); ++i)
    positions[i] = static_cast<int32_t>(static_cast<int64_t>(i) % kSequence);
  std::iota(rows.begin(), rows.end(), 0);
  const std::vector<int32_t> offsets = {0, kSequence, 2 * kSequence, kTokens};
  Tokens tokens;
  tokens.count = kTokens;
  tokens.position_end = kSequence;
  tokens.ids = ConstTensor(ids.data(), DType::kI32, Shape{kTokens});
  tokens.positions = ConstTensor(positions.data(), DType::kI32, Shape{kTokens});
  tokens.global_index = ConstTensor(rows.data(), DType::kI64, Shape{kTokens});
  tokens.cu_q = ConstTensor(offsets.data(), DType::kI32, Shape{std::ssize(offsets)});
  tokens.chunks.cu_q = tokens.cu_q;  // shorter than chunks
  tokens.sequence_length = tokens.uniform_length = tokens.max_seqlen = kSequence;
  Pass pass{.ctx = rank.ctx, .params = rank.store, .tokens = tokens, .groups = &rank.groups};
  std::vector<float> out(static_cast<size_t>(kTokens * rank.model.config().vocab_size));
  const Tensor logits(out.data(), DType::kF32, Shape{kTokens, rank.model.config().vocab_size});
  rank.model.logits(pass, rank.model.forward(pass, 0, {}, nullptr, Recompute::kNone), logits);
  return out;
}

// Sets the values of `plain` to the dequantized ones of `blocks`. Returns the number of weights.
int decode_into(Rank& plain, const Rank& blocks) {
  int decoded = 0;
  for (ParamHandle h = 0; h < std::ssize(plain.store.specs()); ++h) {
    if (!blocks.store.packed(h)) continue;
    blocks.store.unpack(plain.ctx, h, h, plain.store.value(h));
    ++decoded;
  }
  return decoded;
}

// Root mean square of the difference relative to that of the values.
double distance(std::span<const float> a, std::span<const float> b) {
  double wrong = 0, all = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    wrong += d * d;
    all += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return std::sqrt(wrong / all);
}

// distance() of the sequence of logits_of() that differs least.
double min_distance(std::span<const float> a, std::span<const float> b) {
  const size_t size = a.size() * kSequence / kTokens;
  double least = HUGE_VAL;
  for (size_t i = 0; i < a.size(); i += size)
    least = std::min(least, distance(a.subspan(i, size), b.subspan(i, size)));
  return least;
}

const std::vector<ModelFamily> kFamilies = {
    ModelFamily::kLlama,   ModelFamily::kGpt2,       ModelFamily::kMixtral, ModelFamily::kGemma3,
    ModelFamily::kQwen3,   ModelFamily::kDeepseekV3, ModelFamily::kKimiK2,  ModelFamily::kSmolLm3,
    ModelFamily::kGranite, ModelFamily::kOlmo2,      ModelFamily::kGlm4,    ModelFamily::kGptOss,
    ModelFamily::kGemma2,  ModelFamily::kLlama4};

// One rounding of 32 normal values to int8 has an RMS error of e / sqrt(12) with e = max / 127:
// about half a percent of their magnitude. About ten of them follow one another, so that 3 % in the
// logits is a bound; 4-bit weights are far above it.
TEST(BlockFormatModel, ComputesWithWhatTheBlocksStandFor) {
  for (const ModelFamily family : kFamilies)
    for (const BlockFormat format : {BlockFormat::kQ8_0, BlockFormat::kQ4_0}) {
      run_threads(1, [&](Communicator& world) {
        const ModelConfig config = wide_model(family);
        Rank blocks(config, world, 1, DType::kF32, format),
            plain(config, world, 1, DType::kF32, {});
        const std::vector<float> before = logits_of(plain), got = logits_of(blocks);
        EXPECT_GE(decode_into(plain, blocks), 10);
        const std::vector<float> want = logits_of(plain);
        const double off = distance(got, want), weights = distance(want, before);
        EXPECT_LT(off, 0.03) << static_cast<int>(family);
        EXPECT_GT(min_distance(got, want), 1e-3) << "rounding changes every sequence";
        if (format == BlockFormat::kQ4_0) {
          EXPECT_GT(weights, 2 * off);
        }
      });
    }
}

// Ranks split weights at blocks: rows of x that a row-parallel layer splits are rounded in the same
// blocks.
TEST(BlockFormatModel, TwoRanksComputeTheSame) {
  for (const ModelFamily family : kFamilies)
    for (const BlockFormat format : {BlockFormat::kQ8_0, BlockFormat::kQ4_0}) {
      std::vector<float> want;
      run_threads(1, [&](Communicator& world) {
        Rank whole(wide_model(family), world, 1, DType::kF32, format);
        want = logits_of(whole);
      });
      run_threads(2, [&](Communicator& world) {
        Rank half(wide_model(family), world, 2, DType::kF32, format);
        EXPECT_LT(half.store.packed_bytes() * 5,
                  half.store.parameter_count() * (format == BlockFormat::kQ8_0 ? 8 : 6));
        const std::vector<float> got = logits_of(half);
        // A sum that differs in its last bit may, seldom, round to another int8 value in the next
        // layer and change its whole sequence as much as other blocks would. Other blocks change
        // every sequence.
        EXPECT_LT(min_distance(got, want), 1e-4) << static_cast<int>(family);
        EXPECT_LT(distance(got, want), 0.03) << static_cast<int>(family);
      });
    }
}

// Token by token, the cache holds the same values as after one whole pass.
TEST(BlockFormatModel, DecodesWhatItPrefills) {
  for (const ModelFamily family : kFamilies)
    run_threads(1, [&](Communicator& world) {
      Rank rank(wide_model(family), world, 1, DType::kF32, BlockFormat::kQ8_0);
      GenerateOptions options;
      options.sampling.temperature = 0;
      options.max_new_tokens = 10;
      std::vector<int32_t> text = {3, 14, 15, 9, 2, 6};
      const std::vector<int32_t> got =
          generate(rank.model, rank.store, rank.ctx, text, options).tokens;
      options.max_new_tokens = 1;
      for (const int32_t id : got) {
        EXPECT_EQ(generate(rank.model, rank.store, rank.ctx, text, options).tokens.at(0), id);
        text.push_back(id);
      }
    });
}

TEST(BlockFormatModel, HalfABlockOnARankIsRefused) {
  ModelConfig config = wide_model(ModelFamily::kLlama);
  config.intermediate_size = 160;  // 80 on each of two ranks
  std::string why;
  run_threads(2, [&](Communicator& world) {
    try {
      const Rank rank(config, world, 2, DType::kF32, BlockFormat::kQ8_0);
    } catch (const InputError& e) {
      if (world.rank() == 0) why = e.what();
    }
  });
  EXPECT_NE(why.find("mlp.down_proj.weight: 80 of its 160 inputs"), std::string::npos) << why;
}

}  // namespace
}  // namespace trireme::test_block_format_model
