// Paged KV cache of several sequences, on the CPU and on the emulated GPU: a sequence's attention
// equals its attention alone with contiguous keys, whatever blocks the other sequences have.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "engine/ops/rows/transfer.h"
#include "serving/engine/step_batch.h"
#include "tests/emulator/emulator.h"
#include "tests/support/compare.h"
#include "transformer/pass/kv_cache.h"

namespace trireme::test {
namespace {

constexpr int64_t kHeads = 4, kKvHeads = 2, kWidth = 8, kBlockTokens = 4, kBlocks = 12;
constexpr int64_t kMaxBlocks = 4;  // per sequence
constexpr int64_t kPromptContext = 128;
constexpr int kLayer = 3;  // of layers 2 to 4
CachedLayers layers_of(const KvType& type) {
  return {3, 2, kKvHeads, kWidth, type, {{0, 0}, {0, 1}, {0, 2}}};
}

// Element e of token `t` of sequence `s`: 0 q, 1 k, 2 v.
double element(int which, int64_t s, int64_t t, int64_t e) {
  const RandomKey key{static_cast<uint64_t>(which), static_cast<uint64_t>(s)};
  return static_cast<double>(
             uniform_from_word(philox_word(key, static_cast<uint64_t>(t * 1000 + e)))) -
         0.5;
}

// New tokens [begin, end) of a sequence.
struct Part {
  int64_t sequence, begin, end;
};

template <class T>
std::vector<T> rows_of(int which, const std::vector<Part>& parts, int64_t heads) {
  std::vector<T> out;
  for (const Part& p : parts)
    for (int64_t t = p.begin; t < p.end; ++t)
      for (int64_t e = 0; e < heads * kWidth; ++e)
        out.push_back(static_cast<T>(element(which, p.sequence, t, e)));
  return out;
}

// Tensors on the context's device.
class Operands {
 public:
  explicit Operands(Ctx& ctx) : ctx_(ctx) {}
  template <class T>
  Tensor operator()(const std::vector<T>& values, const Shape& shape) {
    memory_.emplace_back("operand", std::max<int64_t>(1, std::ssize(values)) * int64_t{sizeof(T)},
                         ctx_.memory());
    const Tensor t = memory_.back().tensor(dtype_of<T>, shape);
    transfer(ctx_, t, ConstTensor(values.data(), dtype_of<T>, shape));
    return t;
  }

 private:
  Ctx& ctx_;
  std::vector<Buffer> memory_;
};

// One pass over `parts`, each the new tokens of one sequence. blocks[s]: blocks of sequence s.
template <class T>
std::vector<T> paged_pass(Ctx& ctx, KvCache& cache, const std::vector<Part>& parts,
                          const std::vector<std::vector<int32_t>>& blocks) {
  Operands make(ctx);
  std::vector<int64_t> slots;
  std::vector<int32_t> table, lens, cu{0};
  Tokens tokens;
  for (const Part& p : parts) {
    const std::vector<int32_t>& own = blocks[static_cast<size_t>(p.sequence)];
    for (int64_t t = p.begin; t < p.end; ++t)
      slots.push_back(own[static_cast<size_t>(t / kBlockTokens)] * kBlockTokens + t % kBlockTokens);
    for (size_t b = 0; b < kMaxBlocks; ++b) table.push_back(b < own.size() ? own[b] : 0);
    lens.push_back(static_cast<int32_t>(p.end));
    cu.push_back(cu.back() + static_cast<int32_t>(p.end - p.begin));
    tokens.cached.max_queries = std::max(tokens.cached.max_queries, p.end - p.begin);
  }
  const auto n = std::ssize(parts), t = std::ssize(slots);
  tokens.count = t;
  tokens.cu_q = make(cu, {n + 1});
  tokens.cached.slots = make(slots, {t});
  tokens.cached.block_table = make(table, {n, kMaxBlocks});
  tokens.cached.context_lens = make(lens, {n});
  const Tensor out =
      make(std::vector<T>(static_cast<size_t>(t * kHeads * kWidth), T{7}), {t, kHeads, kWidth});
  AttentionArgs args;
  args.scale = 0.35;
  cache.attend(ctx, kLayer, out, make(rows_of<T>(0, parts, kHeads), {t, kHeads, kWidth}),
               make(rows_of<T>(1, parts, kKvHeads), {t, kKvHeads, kWidth}),
               make(rows_of<T>(2, parts, kKvHeads), {t, kKvHeads, kWidth}), tokens, args);
  return to_host<T>(ctx, out);
}

// Attention of the same tokens of one sequence over all its keys, stored contiguously.
std::vector<double> alone(Ctx& ctx, const Part& p) {
  Operands make(ctx);
  const int64_t t = p.end - p.begin;
  const std::vector<Part> news{p}, all{{p.sequence, 0, p.end}};
  const Tensor out =
      make(std::vector<double>(static_cast<size_t>(t * kHeads * kWidth)), {t, kHeads, kWidth});
  const Tensor lse = make(std::vector<double>(static_cast<size_t>(kHeads * t)), {kHeads, t});
  AttentionArgs args;
  args.scale = 0.35;
  attention_forward(ctx, out, lse, make(rows_of<double>(0, news, kHeads), {t, kHeads, kWidth}),
                    make(rows_of<double>(1, all, kKvHeads), {p.end, kKvHeads, kWidth}),
                    make(rows_of<double>(2, all, kKvHeads), {p.end, kKvHeads, kWidth}),
                    make(std::vector<int32_t>{0, static_cast<int32_t>(t)}, {2}),
                    make(std::vector<int32_t>{0, static_cast<int32_t>(p.end)}, {2}), args);
  return to_host<double>(ctx, out);
}

class PagedCache : public testing::TestWithParam<bool> {};

// Unordered blocks; sequence 2 reuses one of sequence 0's after that has ended.
const std::vector<std::vector<Part>> kPasses{
    {{0, 0, 6}, {1, 0, 1}},             // prompts
    {{1, 1, 2}, {0, 6, 7}, {2, 0, 3}},  // one joins; another order
    {{0, 7, 9}, {2, 3, 4}, {1, 2, 6}},  // across the ends of blocks
    {{2, 4, 7}, {1, 6, 7}},             // one has left
};
std::vector<std::vector<int32_t>> blocks_of(size_t pass) {
  std::vector<std::vector<int32_t>> blocks{{7, 2, 11}, {0, 5}, {9}};
  if (pass == 3) blocks[2].push_back(2);
  return blocks;
}

TEST_P(PagedCache, KeepsSequencesApart) {
  const std::unique_ptr<cuda::Context> gpu = GetParam() ? cuda::open(0) : nullptr;
  Ctx ctx(1, "test", gpu.get()), cpu(1, "reference");
  KvCache cache(layers_of({DType::kF64}), kBlocks, kBlockTokens, ctx.memory());
  for (size_t i = 0; i < kPasses.size(); ++i) {
    SCOPED_TRACE(i);
    const std::vector<double> got = paged_pass<double>(ctx, cache, kPasses[i], blocks_of(i));
    std::vector<double> want;
    for (const Part& p : kPasses[i]) {
      const std::vector<double> rows = alone(cpu, p);
      want.insert(want.end(), rows.begin(), rows.end());
    }
    ASSERT_EQ(got.size(), want.size());
    for (size_t e = 0; e < want.size(); ++e) ASSERT_NEAR(got[e], want[e], 1e-12) << e;
  }
}

// A GPU writes and reads the same codes as the CPU.
TEST(PagedCacheCodes, AreTheSameOnBothDevices) {
  const auto gpu = cuda::open(0);
  for (const KvCodes codes : {KvCodes::kInt8, KvCodes::kE4M3, KvCodes::kE5M2}) {
    Ctx there(1, "test", gpu.get()), here(1, "reference");
    const CachedLayers layers = layers_of({DType::kU8, codes});
    KvCache of_gpu(layers, kBlocks, kBlockTokens, there.memory());
    KvCache of_cpu(layers, kBlocks, kBlockTokens, here.memory());
    for (size_t i = 0; i < kPasses.size(); ++i) {
      SCOPED_TRACE(concat(text(layers.type), ", pass ", i));
      const auto got = paged_pass<float>(there, of_gpu, kPasses[i], blocks_of(i));
      const auto want = paged_pass<float>(here, of_cpu, kPasses[i], blocks_of(i));
      ASSERT_EQ(got.size(), want.size());
      for (size_t e = 0; e < want.size(); ++e) ASSERT_NEAR(got[e], want[e], 1e-6) << e;
    }
  }
}

// A prompt among many sequences: the number of thread blocks follows the tokens, not the prompt's
// length times the number of sequences, nor the maximum sequence length.
template <class T>
int64_t blocks_of_mixed_step(int64_t max_context_len) {
  emulator::reset();
  const auto gpu = cuda::open(0);
  Ctx ctx(1, "test", gpu.get());
  Operands make(ctx);
  constexpr int64_t kSequences = 32, kPrompt = 128, kContext = 20, kTable = 8192, kWide = 16;
  std::vector<int32_t> cu{0, kPrompt}, lens{kPrompt};
  for (int32_t n = 1; n < kSequences; ++n) {
    cu.push_back(static_cast<int32_t>(kPrompt) + n);
    lens.push_back(kContext);
  }
  const int64_t tokens = cu.back();
  const auto ones = [&](int64_t count) { return std::vector<T>(static_cast<size_t>(count), T{1}); };
  const Shape pool{1, kKvHeads, kBlockTokens, kWide}, rows{tokens, kHeads, kWide};
  const Tensor out = make(ones(rows.numel()), rows), q = make(ones(rows.numel()), rows);
  const Tensor k = make(ones(pool.numel()), pool), v = make(ones(pool.numel()), pool);
  const Tensor table =
      make(std::vector<int32_t>(kSequences * kTable), {kSequences, kTable});  // of one block
  const Tensor offsets = make(cu, {kSequences + 1}), contexts = make(lens, {kSequences});
  const int64_t before = emulator::counters().blocks;
  paged_attention(ctx, out, q, k, v, table, offsets, contexts,
                  {.max_queries = kPrompt, .max_context_len = max_context_len});
  for (const T& x : to_host<T>(ctx, out)) EXPECT_NEAR(static_cast<float>(x), 1.0f, 1e-5f);
  return emulator::counters().blocks - before;
}

TEST(PagedGrid, FollowsTheWork) {
  // Tiles of 32 and of 16 rows: 159 tokens of two heads, and one more for each sequence; twice,
  // without a merge.
  EXPECT_EQ(blocks_of_mixed_step<float>(kPromptContext), 2 * (159 * 2 / 32 + 32));
  EXPECT_EQ(blocks_of_mixed_step<bf16>(kPromptContext), 2 * (159 * 2 / 16 + 32));
  // 32 parts where any context length is possible, and a merge.
  EXPECT_EQ(blocks_of_mixed_step<bf16>(0), 32 * 2 * (159 * 2 / 16 + 32) + 159 * kHeads);
}

TEST(PagedGrid, HasFewBounds) {
  EXPECT_EQ(paged_context_bound(1), 256);
  EXPECT_EQ(paged_context_bound(256), 256);
  EXPECT_EQ(paged_context_bound(257), 512);
  EXPECT_EQ(paged_context_bound(4096), 4096);
  EXPECT_EQ(paged_context_bound(4097), 0);
  EXPECT_EQ(paged_context_bound(int64_t{1} << 40), 0);
}

// A library computes attention over whole prompts where their maximum length is known.
TEST(StepInputs, TellTheLongestPromptOfNewSequences) {
  Ctx ctx(1, "test");
  StepBatch batch(ctx, {.tokens = 16, .sequences = 4, .length = 1024, .blocks = 64});
  const std::vector<int32_t> ids{1, 2, 3, 4, 5};
  const BlockTable table{
      .blocks = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19}};
  const auto part = [&](size_t count, int64_t past) {
    return StepBatch::Part{.ids = std::span(ids).first(count), .past = past, .tables = {&table, 1}};
  };
  const std::vector<int32_t> rows{2, 7};
  batch.write(ctx, std::vector{part(3, 0), part(5, 0)}, rows, 0);
  EXPECT_EQ(batch.tokens().max_seqlen, 5);
  EXPECT_EQ(batch.tokens().cached.max_context_len, 256);
  batch.write(ctx, std::vector{part(3, 300), part(5, 0)}, rows, 0);
  EXPECT_EQ(batch.tokens().max_seqlen, 0);
  EXPECT_EQ(batch.tokens().cached.max_context_len, 512);
  StepLimits deterministic{.tokens = 16, .sequences = 4, .length = 1024, .blocks = 64};
  deterministic.deterministic = true;
  StepBatch plain(ctx, deterministic);
  plain.write(ctx, std::vector{part(3, 0), part(5, 0)}, rows, 0);
  EXPECT_EQ(plain.tokens().max_seqlen, 0);
}

INSTANTIATE_TEST_SUITE_P(Devices, PagedCache, testing::Bool(),
                         [](const auto& one) { return one.param ? "gpu" : "cpu"; });

TEST(PagedCacheLayers, AreKnownByTheirNumbers) {
  Ctx ctx(1, "test");
  const CachedLayers layers = layers_of({DType::kF64});
  KvCache cache(layers, kBlocks, kBlockTokens, Memory::kHost);
  EXPECT_EQ(cache.blocks(), kBlocks);
  EXPECT_EQ(cache.block_tokens(), kBlockTokens);
  EXPECT_EQ(layers.place(2).index, 0);
  EXPECT_EQ(layers.place(4).index, 2);
  EXPECT_THROW((void)layers.place(5), Error);
  EXPECT_THROW((void)layers.place(1), Error);
}

}  // namespace
}  // namespace trireme::test
