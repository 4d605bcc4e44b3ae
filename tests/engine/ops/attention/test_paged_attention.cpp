// Attention over paged keys equals attention over the same keys stored contiguously.
#include <cmath>
#include <cstring>

#include "engine/ops/attention/attention.h"
#include "engine/ops/attention/paged_attention.h"
#include "tests/support/op_run.h"

namespace trireme::test::test_paged_attention {
namespace {

constexpr int64_t kHeads = 4, kKvHeads = 2, kWidth = 20, kAttentionBlock = 4, kBlocks = 12;

struct Form {
  int64_t window = 0;
  double soft_cap = 0;
};

class PagedAttention : public testing::TestWithParam<Form> {};

TEST_P(PagedAttention, IsAttentionOverTheGatheredKeys) {
  Ctx ctx(1, "test");
  const std::vector<int32_t> cu_q = {0, 1, 4, 4}, lengths = {9, 11, 7}, cu_k = {0, 9, 20, 27};
  // Blocks of the sequences, and a slot for each key in order.
  const std::vector<int32_t> table = {7, 2, 10, 0, 5, 11, 3, 9, 8};
  std::vector<int64_t> slots;
  for (size_t n = 0; n < lengths.size(); ++n)
    for (int32_t j = 0; j < lengths[n]; ++j)
      slots.push_back(table[3 * n + static_cast<size_t>(j) / kAttentionBlock] * kAttentionBlock +
                      j % kAttentionBlock);
  const Shape rows{27, kKvHeads, kWidth}, pool{kBlocks, kKvHeads, kAttentionBlock, kWidth};
  const Shape queries{5, kHeads, kWidth};  // one row of padding
  const auto random = [](const char* name, const Shape& shape) {
    return TestTensor(DType::kF64, shape, normals(name, shape.numel()));
  };
  const TestTensor q = random("q", queries), k = random("k", rows), v = random("v", rows);
  const TestTensor k_pool = random("k_pool", pool), v_pool = random("v_pool", pool);
  const TestTensor where({27}, slots), offsets({4}, cu_q), key_offsets({4}, cu_k);
  const TestTensor blocks({3, 3}, table), context({3}, lengths);
  paged_append(ctx, k_pool, v_pool, k, v, where);

  const TestTensor k_back = random("a", rows), v_back = random("b", rows);
  paged_gather(ctx, k_back, v_back, k_pool, v_pool, where);
  EXPECT_EQ(compare_exact(*k_back, *k), "");
  EXPECT_EQ(compare_exact(*v_back, *v), "");

  const TestTensor want = random("want", queries), lse = random("lse", {kHeads, 5});
  const auto [window, soft_cap] = GetParam();
  const AttentionArgs in_a_row{
      .scale = 0.4, .soft_cap = soft_cap, .window = window, .key = {}, .global_index = {}};
  attention_forward(ctx, want, lse, q, k, v, offsets, key_offsets, in_a_row);
  const PagedAttentionArgs args{
      .scale = 0.4, .window = window, .max_queries = 3, .soft_cap = soft_cap};
  for_each_kernel([&](Ctx& kernel) {
    TestTensor got = random("got", queries);
    paged_attention(kernel, got, q, k_pool, v_pool, blocks, offsets, context, args);
    EXPECT_EQ(compare(*got, to_doubles(*want), tolerance(DType::kF64, kWidth + 11)), "");
    return outputs(std::move(got));
  });
}

INSTANTIATE_TEST_SUITE_P(Forms, PagedAttention,
                         testing::Values(Form{}, Form{.window = 5}, Form{5, 0.6}, Form{0, 30}));

// A sequence of `keys` tokens, all of them queries, with keys in blocks of 16.
struct Long {
  int64_t heads, kv_heads, width, window, keys = 150;
};

class LongPagedAttention : public testing::TestWithParam<Long> {
 protected:
  TestTensor random(const char* name, const Shape& shape) const {
    return TestTensor(dtype_, shape, normals(name, shape.numel()));
  }
  // Stores all keys in the pools, in blocks 20, 17, 14 ...
  void store(Ctx& ctx, const Tensor& k_pool, const Tensor& v_pool) const {
    const Long& s = GetParam();
    std::vector<int64_t> slots;
    for (int64_t j = 0; j < s.keys; ++j) slots.push_back((20 - j / 16 * 2) * 16 + j % 16);
    const Shape rows{s.keys, s.kv_heads, s.width};
    paged_append(ctx, k_pool, v_pool, random("k", rows), random("v", rows),
                 TestTensor({s.keys}, slots));
  }
  // Attention of queries [begin, end) into out, next to `others` sequences of one token that share
  // the keys.
  void attend(Ctx& ctx, const Tensor& out, const ConstTensor& q, const Tensor& k_pool,
              const Tensor& v_pool, int64_t begin, int64_t end, int32_t others) const {
    const Long& s = GetParam();
    std::vector<int32_t> table, cu{0}, lens;
    for (int32_t n = 0; n <= others; ++n) {
      for (int32_t b = 0; b < 10; ++b) table.push_back(20 - 2 * b);
      cu.push_back(n < others ? n + 1 : others + static_cast<int32_t>(end - begin));
      lens.push_back(n < others ? 7 * n + 1 : static_cast<int32_t>(end));
    }
    const TestTensor all(dtype_, {cu.back(), s.heads, s.width}), got(dtype_, all->shape());
    const auto copy = [&](void* to, const void* from) {
      std::memcpy(to, from, static_cast<size_t>((end - begin) * s.heads * s.width) * sizeof(float));
    };
    const ConstTensor own = all->slice(0, others, cu.back());
    copy(const_cast<void*>(own.raw()), q.slice(0, begin, end).raw());
    paged_attention(ctx, got, all, k_pool, v_pool, TestTensor({others + 1, 10}, table),
                    TestTensor({others + 2}, cu), TestTensor({others + 1}, lens),
                    {.scale = 0.3, .window = s.window, .max_queries = end - begin});
    copy(out.slice(0, begin, end).raw(), got->slice(0, others, cu.back()).raw());
  }
  DType dtype_ = DType::kF32;
};

// Any chunks of the sequence, alone or next to others, have the bits of the whole; and the whole
// equals plain attention.
TEST_P(LongPagedAttention, HasTheSameBitsInAnyChunks) {
  const Long& s = GetParam();
  const Shape queries{s.keys, s.heads, s.width}, pool{21, s.kv_heads, 16, s.width};
  const TestTensor q = random("q", queries);
  Ctx reference(1, "test");
  const TestTensor want(dtype_, queries), lse(DType::kF32, {s.heads, s.keys});
  const TestTensor cu({2}, std::vector<int32_t>{0, static_cast<int32_t>(s.keys)});
  const AttentionArgs in_a_row{.scale = 0.3, .window = s.window, .key = {}, .global_index = {}};
  attention_forward(reference, want, lse, q, random("k", {s.keys, s.kv_heads, s.width}),
                    random("v", {s.keys, s.kv_heads, s.width}), cu, cu, in_a_row);
  for_each_kernel([&](Ctx& ctx) {
    const TestTensor k_pool = random("k_pool", pool), v_pool = random("v_pool", pool);
    store(ctx, k_pool, v_pool);
    TestTensor whole(dtype_, queries);
    attend(ctx, whole, q, k_pool, v_pool, 0, s.keys, 0);
    EXPECT_EQ(compare(*whole, to_doubles(*want), between_computations(dtype_, s.width + s.keys)),
              "");
    const TestTensor chunks(dtype_, queries);
    int32_t others = 0;
    for (int64_t begin = 0, size = 1; begin < s.keys; begin += size, size = 2 * size % 61)
      attend(ctx, chunks, q, k_pool, v_pool, begin, std::min(s.keys, begin + size), others++);
    EXPECT_EQ(compare_exact(*chunks, *whole), "");
    return outputs(std::move(whole));
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, LongPagedAttention,
                         testing::Values(Long{4, 4, 64, 0}, Long{6, 2, 40, 0}, Long{8, 1, 128, 0},
                                         Long{1, 1, 7, 0, 33}, Long{6, 2, 20, 45},
                                         Long{40, 4, 16, 1, 80}));

}  // namespace
}  // namespace trireme::test::test_paged_attention
