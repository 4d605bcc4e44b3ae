// Attention over paged keys is attention over the same keys in a row.
#include <cmath>

#include "engine/ops/attention.h"
#include "engine/ops/paged_attention.h"
#include "tests/support/op_run.h"

namespace trireme::test {
namespace {

constexpr int64_t kHeads = 4, kKvHeads = 2, kWidth = 20, kBlock = 4, kBlocks = 12;

class PagedAttention : public testing::TestWithParam<int64_t> {};

TEST_P(PagedAttention, IsAttentionOverTheGatheredKeys) {
  Ctx ctx(1, "test");
  const std::vector<int32_t> cu_q = {0, 1, 4, 4}, lengths = {9, 11, 7}, cu_k = {0, 9, 20, 27};
  // Block b of sequence n; a slot for each key in a row.
  const std::vector<int32_t> table = {7, 2, 10, 0, 5, 11, 3, 9, 8};
  std::vector<int64_t> slots;
  for (size_t n = 0; n < lengths.size(); ++n)
    for (int32_t j = 0; j < lengths[n]; ++j)
      slots.push_back(table[3 * n + static_cast<size_t>(j) / kBlock] * kBlock + j % kBlock);
  const Shape rows{27, kKvHeads, kWidth}, pool{kBlocks, kKvHeads, kBlock, kWidth};
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
  const AttentionArgs in_a_row{.scale = 0.4, .window = GetParam(), .key = {}, .global_row = {}};
  attention_forward(ctx, want, lse, q, k, v, offsets, key_offsets, in_a_row);
  const PagedAttentionArgs args{.scale = 0.4, .window = GetParam(), .most_queries = 3};
  for_each_kernel([&](Ctx& kernel) {
    TestTensor got = random("got", queries);
    paged_attention(kernel, got, q, k_pool, v_pool, blocks, offsets, context, args);
    EXPECT_EQ(compare(*got, to_doubles(*want), tolerance(DType::kF64, kWidth + 11)), "");
    return outputs(std::move(got));
  });
}

INSTANTIATE_TEST_SUITE_P(Windows, PagedAttention, testing::Values(0, 5));

}  // namespace
}  // namespace trireme::test
