// KV cache in 8 bits: stored values of its layers, and attention over a prompt.
#include "tests/support/op_run.h"
#include "transformer/pass/kv_cache.h"

namespace trireme::test::test_kv_cache {
namespace {

constexpr int64_t kHeads = 4, kKvHeads = 2, kWidth = 12, kBlockTokens = 5, kBlocks = 4, kLength = 9;
constexpr int kFirstLayer = 2;

class KvCacheTypes : public testing::TestWithParam<KvCodes> {
 protected:
  static CachedLayers layers() {
    return {3, kFirstLayer, kKvHeads, kWidth, {DType::kU8, GetParam()}, {{0, 0}, {0, 1}, {0, 2}}};
  }

  // Tokens [begin, end) of a sequence in blocks 3 and 1; the operands of a layer depend on its
  // number.
  static TestTensor attend(KvCache& cache, int layer, int64_t begin, int64_t end,
                           bool new_sequence) {
    Ctx ctx(1, "test");
    const int64_t count = end - begin;
    const auto rows = [&](const char* name, int64_t heads) {
      const std::vector<double> all = normals(concat(name, layer), kLength * heads * kWidth);
      const auto row = static_cast<std::ptrdiff_t>(heads * kWidth);
      return TestTensor(DType::kF32, {count, heads, kWidth},
                        {all.begin() + begin * row, all.begin() + end * row});
    };
    std::vector<int64_t> slots;
    for (int64_t t = begin; t < end; ++t)
      slots.push_back((t < kBlockTokens ? 3 : 1) * kBlockTokens + t % kBlockTokens);
    const TestTensor at({count}, slots), table({1, 2}, std::vector<int32_t>{3, 1});
    const TestTensor cu({2}, std::vector<int32_t>{0, static_cast<int32_t>(count)});
    const TestTensor length({1}, std::vector<int32_t>{static_cast<int32_t>(end)});
    Tokens tokens;
    tokens.count = count;
    tokens.cu_q = *cu;
    tokens.cached = {.slots = *at,
                     .block_table = *table,
                     .context_lens = *length,
                     .max_queries = count,
                     .new_sequences = new_sequence};
    AttentionArgs args;
    args.scale = 0.3;
    TestTensor out(DType::kF32, {count, kHeads, kWidth});
    cache.attend(ctx, layer, out, rows("q", kHeads), rows("k", kKvHeads), rows("v", kKvHeads),
                 tokens, args);
    return out;
  }
};

TEST_P(KvCacheTypes, TakeAByteForANumberAndAScaleForARow) {
  EXPECT_EQ(layers().token_bytes(), kKvHeads * (kWidth + 4));
}

// A prompt attends to its own keys as stored, like a request that finds them in the prefix cache.
TEST_P(KvCacheTypes, AttendAPromptAsItsChunks) {
  KvCache whole(layers(), kBlocks, kBlockTokens, Memory::kHost);
  KvCache parts(layers(), kBlocks, kBlockTokens, Memory::kHost);
  const TestTensor all = attend(whole, kFirstLayer, 0, kLength, true);
  EXPECT_EQ(compare_exact(*attend(parts, kFirstLayer, 0, 4, true), all->slice(0, 0, 4)), "");
  EXPECT_EQ(
      compare_exact(*attend(parts, kFirstLayer, 4, kLength, false), all->slice(0, 4, kLength)), "");
}

TEST_P(KvCacheTypes, KeepLayersApart) {
  for (int layer = kFirstLayer; layer < kFirstLayer + 3; ++layer) {
    KvCache shared(layers(), kBlocks, kBlockTokens, Memory::kHost);
    KvCache alone(layers(), kBlocks, kBlockTokens, Memory::kHost);
    attend(alone, layer, 0, kLength - 1, true);
    attend(shared, layer, 0, kLength - 1, true);
    for (int other = kFirstLayer; other < kFirstLayer + 3; ++other)
      if (other != layer) attend(shared, other, 0, kLength, true);
    EXPECT_EQ(compare_exact(*attend(shared, layer, kLength - 1, kLength, false),
                            *attend(alone, layer, kLength - 1, kLength, false)),
              "")
        << layer;
  }
}

INSTANTIATE_TEST_SUITE_P(Codes, KvCacheTypes,
                         testing::Values(KvCodes::kInt8, KvCodes::kE4M3, KvCodes::kE5M2));

}  // namespace
}  // namespace trireme::test::test_kv_cache
