// Decoding on the emulated GPU: the CPU's output, and for every token except the first few one copy
// to the device, one launch of a recorded pass and one synchronization.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "engine/device/graph.h"
#include "engine/ops/quantized/quantized_weight.h"
#include "serving/engine/generate.h"
#include "serving/engine/sampler.h"
#include "tests/emulator/emulator.h"
#include "tests/serving/tiny_model.h"
#include "transformer/pass/kv_groups.h"

namespace trireme::test {
namespace {

// Model with the same weights on the CPU (no gpu) and on the device.
struct Decoding {
  Decoding(const ModelConfig& config, DType dtype, cuda::Context* gpu,
           std::optional<BlockFormat> format = {})
      : ctx(1, "test", gpu),
        model(config, dtype),
        store(model.parameters(), dtype, {}, {.blocks = format}) {
    model.reserve_positions(ctx, config.max_positions);
    store.allocate(ctx, false);
    store.initialize(ctx, 5);
  }
  Generation text(const std::vector<int32_t>& prompt, int64_t count,
                  const std::function<bool(int32_t)>& on_token = {}) {
    GenerateOptions options;
    options.kv_type = kv_type;
    options.sampling = sampling;
    options.max_new_tokens = count;
    return generate(model, store, ctx, prompt, options, on_token);
  }
  Ctx ctx;
  Model model;
  ParameterStore store;
  std::optional<KvType> kv_type = {};
  RowSamplingParams sampling{.temperature = 0};
};

void expect_same(const Generation& got, const Generation& want, double tolerance) {
  EXPECT_EQ(got.tokens, want.tokens);
  EXPECT_EQ(got.reason, want.reason);
  ASSERT_EQ(got.logprobs.size(), want.logprobs.size());
  for (size_t i = 0; i < want.logprobs.size(); ++i)
    EXPECT_NEAR(got.logprobs[i], want.logprobs[i], tolerance) << "token " << i;
}

struct Case {
  ModelFamily family;
  DType dtype;
};

class DecodeOnGpu : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override { emulator::reset(); }
};

// Beyond the end of a block and of two; prompts of many tokens and of one.
TEST_P(DecodeOnGpu, WritesTheTextOfTheCpu) {
  const auto [family, dtype] = GetParam();
  const auto gpu = cuda::open(0);
  Decoding here(tiny_model(family), dtype, nullptr), there(tiny_model(family), dtype, gpu.get());
  const double tolerance = dtype == DType::kF64 ? 1e-6 : 1e-4;  // the logits are float32 in both
  for (const std::vector<int32_t>& prompt :
       {std::vector<int32_t>{3, 14, 15, 9, 2, 6}, std::vector<int32_t>{7}})
    expect_same(there.text(prompt, 36), here.text(prompt, 36), tolerance);
  EXPECT_GT(emulator::counters().graph_launches, 60);
}

TEST_P(DecodeOnGpu, LaunchesOnceAndWaitsOnceForAToken) {
  const DType dtype = GetParam().dtype;
  const auto gpu = cuda::open(0);
  Decoding there(tiny_model(GetParam().family), dtype, gpu.get());
  const int64_t groups = std::ssize(kv_windows(there.model.config(), 26));
  int64_t tokens = 0, launches = 0, blocks = 0;
  emulator::Counters before;
  there.text({3, 14, 15, 9, 2, 6}, 20, [&](int32_t) {
    const emulator::Counters now = emulator::counters();
    // The prompt's pass, the first pass of one token, the recorded pass.
    if (tokens >= 3) {
      EXPECT_EQ(gpu->launches - launches, 1) << "token " << tokens;
      EXPECT_EQ(now.graph_launches - before.graph_launches, 1);
      EXPECT_LE(now.synchronized() - before.synchronized(), 1);
      EXPECT_EQ(now.allocations - before.allocations, 0);
      // An id, a position and two offsets; a slot and a length in each group of layers; where
      // tokens are sampled on the device, five sampling parameters and a position, aligned to 8
      // bytes; the numbers of new blocks.
      const int64_t step = 4 + 4 + 2 * 4 + groups * (8 + 4);
      const int64_t sampling = dtype == DType::kF64 ? 0 : round_up(step, int64_t{8}) - step + 6 * 8;
      const int64_t more = now.bytes_to_device - before.bytes_to_device - step - sampling;
      EXPECT_TRUE(more == 0 || more == 4 * groups) << more;
      blocks += more / 4;
      EXPECT_EQ(now.bytes_to_host - before.bytes_to_host, 0);  // the copy is part of the record
    }
    before = now;
    launches = gpu->launches;
    ++tokens;
    return true;
  });
  EXPECT_EQ(tokens, 20);
  EXPECT_EQ(blocks, groups);  // at the seventeenth token
}

TEST_P(DecodeOnGpu, RecordsNothingWhereEveryLaunchIsWaitedFor) {
  const auto [family, dtype] = GetParam();
  const auto gpu = cuda::open(0);
  Decoding there(tiny_model(family), dtype, gpu.get());
  const Generation want = there.text({1, 2, 3}, 8);
  const int64_t before = emulator::counters().graph_launches;
  EXPECT_EQ(before, 6);
  gpu->synchronous = true;
  expect_same(there.text({1, 2, 3}, 8), want, 0);
  EXPECT_EQ(emulator::counters().graph_launches, before);
}

INSTANTIATE_TEST_SUITE_P(
    Models, DecodeOnGpu,
    testing::Values(Case{ModelFamily::kGpt2, DType::kF64}, Case{ModelFamily::kGpt2, DType::kF32},
                    Case{ModelFamily::kLlama, DType::kF64}, Case{ModelFamily::kLlama, DType::kF32},
                    Case{ModelFamily::kMistral, DType::kF32},
                    Case{ModelFamily::kQwen3, DType::kF64}, Case{ModelFamily::kQwen3, DType::kF32},
                    Case{ModelFamily::kDeepseekV3, DType::kF32},
                    Case{ModelFamily::kGemma3, DType::kF32},
                    Case{ModelFamily::kSmolLm3, DType::kF32},
                    Case{ModelFamily::kGranite, DType::kF32}));

// Where the devices compute a key or value with other last bits, its code may be a neighbouring
// one. In bfloat16 they differ by more: about ten activations of a token by 2^-8 each.
TEST(DecodeOnGpuCodes, AreRecordedAndReadAsOnTheCpu) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const KvCodes codes : {KvCodes::kInt8, KvCodes::kE4M3, KvCodes::kE5M2}) {
      emulator::reset();
      const auto gpu = cuda::open(0);
      SCOPED_TRACE(concat(text(KvType{DType::kU8, codes}), " beside ", text(dtype)));
      ModelConfig config = tiny_model(ModelFamily::kLlama);
      config.head_dim = 16;  // the width that tensor cores need in 16 bits
      Decoding here(config, dtype, nullptr), there(config, dtype, gpu.get());
      here.kv_type = there.kv_type = KvType{DType::kU8, codes};
      expect_same(there.text({3, 14, 15, 9, 2, 6}, 24), here.text({3, 14, 15, 9, 2, 6}, 24),
                  dtype == DType::kF32 ? 1e-2 : 4e-2);
      EXPECT_EQ(emulator::counters().graph_launches, 22);
    }
}

// The same for activations, which are rounded to int8. A prompt of many tokens is multiplied with
// decoded weights without that rounding, which amounts to 2 % of a logit's magnitude
// (tests/serving/engine/test_block_format_model.cpp).
TEST(DecodeOnGpuBlocks, WriteTheTextOfTheCpu) {
  std::vector<int32_t> long_prompt(kMaxBlockRows + 3);
  for (size_t i = 0; i < long_prompt.size(); ++i) long_prompt[i] = static_cast<int32_t>(i * 7 % 37);
  for (const ModelFamily family : {ModelFamily::kLlama, ModelFamily::kGpt2, ModelFamily::kMixtral})
    for (const BlockFormat format : {BlockFormat::kQ8_0, BlockFormat::kQ4_0}) {
      emulator::reset();
      const auto gpu = cuda::open(0);
      SCOPED_TRACE(concat(static_cast<int>(family), ", format ", static_cast<int>(format)));
      ModelConfig config = tiny_model(family);
      config.max_positions = 96;
      Decoding here(config, DType::kF32, nullptr, format);
      Decoding there(config, DType::kF32, gpu.get(), format);
      const std::vector<int32_t> prompt = {3, 14, 15, 9};
      expect_same(there.text(prompt, 12), here.text(prompt, 12), 1e-2);
      expect_same(there.text(long_prompt, 12), here.text(long_prompt, 12), 8e-2);
      EXPECT_EQ(emulator::counters().graph_launches, family == ModelFamily::kMixtral ? 0 : 20);
    }
}

// 12 bytes per token are copied to the host instead of its logits.
TEST(DecodeOnGpuSampling, ChoosesWhereTheLogitsAre) {
  emulator::reset();
  const auto gpu = cuda::open(0);
  const ModelConfig config = tiny_model(ModelFamily::kLlama);
  Decoding here(config, DType::kF32, nullptr), there(config, DType::kF32, gpu.get());
  for (const RowSamplingParams& sampling :
       {RowSamplingParams{.temperature = 0}, RowSamplingParams{.temperature = 0.9, .seed = 3},
        RowSamplingParams{
            .temperature = 1.3, .top_k = 9, .top_p = 0.8, .min_p = 0.01, .seed = 11}}) {
    here.sampling = there.sampling = sampling;
    cuda::synchronize(*gpu, gpu->main);
    const emulator::Counters before = emulator::counters();
    int64_t tokens = 0;
    const Generation got = there.text({3, 14, 15, 9, 2, 6}, 20, [&](int32_t) {
      if (++tokens == 1) {
        EXPECT_EQ(emulator::counters().bytes_to_host - before.bytes_to_host, 12);
      }
      return true;
    });
    EXPECT_GT(emulator::counters().launches["sample_rows"], 0);
    expect_same(got, here.text({3, 14, 15, 9, 2, 6}, 20), 1e-4);
  }
}

// Options that change logits, or that report other tokens, are handled by the host.
TEST(DecodeOnGpuSampling, LeavesToTheHostWhatItAloneKnows) {
  Sampler sampler(1, 37);
  const auto choice = [&](const std::function<void(SamplingParams&)>& change) {
    auto one = std::make_shared<SamplingParams>();
    change(*one);
    SlotStart start;
    start.slot = 0;
    start.sampling_params = one;
    sampler.start(start);
    return sampler.samples_on_device(0, nullptr);
  };
  EXPECT_TRUE(choice([](SamplingParams&) {}));
  EXPECT_FALSE(choice([](SamplingParams& c) { c.top_logprobs = 2; }));
  EXPECT_FALSE(choice([](SamplingParams& c) { c.sampling.typical_p = 0.5; }));
  EXPECT_FALSE(choice([](SamplingParams& c) { c.logit_bias = {{3, 1.0}}; }));
  EXPECT_FALSE(choice([](SamplingParams& c) { c.repetition_penalty = 1.2; }));
  EXPECT_FALSE(choice([](SamplingParams& c) { c.min_tokens = 1; }));
  EXPECT_TRUE(choice([](SamplingParams&) {}));
  const std::vector<uint32_t> mask(2, ~0u);
  EXPECT_FALSE(sampler.samples_on_device(0, mask.data()));
}

// Thread blocks launched for 256 tokens of context do not cover token 257: another record does.
TEST(DecodeOnGpuContexts, AreRecordedForEachBound) {
  emulator::reset();
  const auto gpu = cuda::open(0);
  ModelConfig config = tiny_model(ModelFamily::kLlama);
  config.max_positions = 320;
  Decoding here(config, DType::kF64, nullptr), there(config, DType::kF64, gpu.get());
  std::vector<int32_t> prompt(250);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(i * 5 % 37);
  expect_same(there.text(prompt, 14), here.text(prompt, 14), 1e-6);
  // 13 passes over one token: the first with each of two bounds is queued without a record.
  EXPECT_EQ(emulator::counters().graph_launches, 11);
}

// Passes with experts are not recorded: the host reads the number of tokens of each expert.
TEST(DecodeOnGpuExperts, AreNotRecorded) {
  emulator::reset();
  const auto gpu = cuda::open(0);
  const ModelConfig config = tiny_model(ModelFamily::kMixtral);
  Decoding here(config, DType::kF64, nullptr), there(config, DType::kF64, gpu.get());
  expect_same(there.text({3, 14, 15}, 10), here.text({3, 14, 15}, 10), 1e-6);
  EXPECT_EQ(emulator::counters().graph_launches, 0);
}

TEST(Graph, AnExceptionEndsTheRecording) {
  emulator::reset();
  const auto gpu = cuda::open(0);
  const Buffer there("there", 4, Memory::kDevice);
  const auto fill = [&](int value) { cuda::fill_bytes(*gpu, gpu->main, there.data(), value, 4); };
  EXPECT_THROW(cuda::capture(*gpu,
                             [&] {
                               fill(1);
                               throw Error("no");
                             }),
               Error);
  fill(2);
  const cuda::Graph graph = cuda::capture(*gpu, [&] { fill(3); });
  int32_t value = 0;
  cuda::download(*gpu, &value, there.data(), 4);
  EXPECT_EQ(value, 0x02020202);  // neither recording was executed
  cuda::replay(*gpu, graph);
  cuda::download(*gpu, &value, there.data(), 4);
  EXPECT_EQ(value, 0x03030303);
}

}  // namespace
}  // namespace trireme::test
