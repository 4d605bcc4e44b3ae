// Pools of keys and values in other types than the operands': floats of another width, and 8-bit
// codes.
#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/core/float8.h"
#include "engine/ops/attention/paged_attention.h"
#include "tests/support/kv_tolerance.h"
#include "tests/support/op_run.h"

namespace trireme::test::test_paged_codes {
namespace {

constexpr int64_t kHeads = 6, kKvHeads = 2, kAttentionBlock = 16, kBlocks = 8;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN(),
                 kInfinity = std::numeric_limits<double>::infinity();
const std::vector<KvType> kTypes = {{DType::kU8, KvCodes::kInt8},
                                    {DType::kU8, KvCodes::kE4M3},
                                    {DType::kU8, KvCodes::kE5M2},
                                    {DType::kBF16},
                                    {DType::kF16},
                                    {DType::kF32}};

struct Pool {
  Pool(const KvType& kind, int64_t width)
      : type(kind),
        k(type.dtype, {kBlocks, kKvHeads, kAttentionBlock, width}),
        v(type.dtype, {kBlocks, kKvHeads, kAttentionBlock, width}),
        k_scale(DType::kF32, {kBlocks, kKvHeads, kAttentionBlock}),
        v_scale(DType::kF32, {kBlocks, kKvHeads, kAttentionBlock}) {}

  PagedScales scales() const { return {k_scale, v_scale, type.codes}; }
  // The dequantized pool of keys.
  std::vector<double> keys() const {
    if (type.codes == KvCodes::kNone) return to_doubles(*k);
    std::vector<double> out;
    const uint8_t* const codes = k->as<uint8_t>();
    for (int64_t i = 0; i < k->numel(); ++i) {
      fp8_e4m3 e4m3;
      fp8_e5m2 e5m2;
      e4m3.bits = e5m2.bits = codes[i];
      const float number = type.codes == KvCodes::kInt8   ? static_cast<int8_t>(codes[i])
                           : type.codes == KvCodes::kE4M3 ? static_cast<float>(e4m3)
                                                          : static_cast<float>(e5m2);
      out.push_back(static_cast<double>(k_scale->as<float>()[i / k->size(3)]) * number);
    }
    return out;
  }

  KvType type;
  TestTensor k, v, k_scale, v_scale;
};

// Slots of a sequence's first `count` tokens, in blocks table[0], table[1] ...
std::vector<int64_t> slots_of(const std::vector<int32_t>& table, int64_t count) {
  std::vector<int64_t> out;
  for (int64_t j = 0; j < count; ++j)
    out.push_back(table[static_cast<size_t>(j / kAttentionBlock)] * kAttentionBlock +
                  j % kAttentionBlock);
  return out;
}

class PagedTypes : public testing::TestWithParam<KvType> {};

// Stored values are within the format's error, relative to a row's largest magnitude; zeros stay
// zero.
TEST_P(PagedTypes, RoundsRowsAsItsHeaderSays) {
  const KvType type = GetParam();
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
    for (const int64_t width : {1, 7, 16, 40, 200}) {
      const Shape rows{5, kKvHeads, width};
      std::vector<double> given = stored(dtype, normals("rows", rows.numel()));
      for (int64_t i = 0; i < width; ++i) given[static_cast<size_t>(i)] = 0;
      for (int64_t i = width; i < 2 * width; ++i) given[static_cast<size_t>(i)] *= 0x1p-12;
      given.back() *= 0x1p12;  // one far larger than the others of its row
      given = stored(dtype, given);
      const TestTensor x(dtype, rows, given), slots({5}, std::vector<int64_t>{17, 3, -1, 127, 64});
      for_each_kernel([&](Ctx& ctx) {
        Pool pool(type, width);
        paged_append(ctx, pool.k, pool.v, x, x, slots, pool.scales());
        const std::vector<double> held = pool.keys();
        for (const int64_t t : {0, 1, 3, 4})
          for (int64_t h = 0; h < kKvHeads; ++h) {
            const int64_t slot = slots->as<int64_t>()[t], from = (t * kKvHeads + h) * width;
            const int64_t to = ((slot / kAttentionBlock * kKvHeads + h) * kAttentionBlock +
                                slot % kAttentionBlock) *
                               width;
            double largest = 0;
            for (int64_t i = 0; i < width; ++i)
              largest = std::max(largest, std::abs(given[static_cast<size_t>(from + i)]));
            // The smallest values of float16 have larger gaps.
            const double most =
                largest * kv_row_error(type) + (type.dtype == DType::kF16 ? 0x1p-25 : 0);
            for (int64_t i = 0; i < width; ++i)
              EXPECT_NEAR(held[static_cast<size_t>(to + i)], given[static_cast<size_t>(from + i)],
                          most)
                  << text(type) << " of " << text(dtype) << ", row " << t << ", " << h;
          }
        EXPECT_EQ(compare_exact(*pool.k, *pool.v), "");
        return outputs(std::move(pool.k), std::move(pool.v));
      });
    }
}

// Compares with attention over the rounded operands, and within the format's error with attention
// over the exact ones.
TEST_P(PagedTypes, IsAttentionOverRoundedKeys) {
  const KvType type = GetParam();
  const int64_t width = 40, keys = 75;
  const double scale = 0.2;
  const std::vector<int32_t> table = {6, 1, 0, 4, 3};
  const TestTensor slots({keys}, slots_of(table, keys)), blocks({1, 5}, table);
  const TestTensor cu({2}, std::vector<int32_t>{0, 70}), lens({1}, std::vector<int32_t>{75});
  const std::vector<double> q = normals("q", 70 * kHeads * width),
                            k = normals("k", keys * kKvHeads * width),
                            v = normals("v", keys * kKvHeads * width);
  const auto most = [](const std::vector<double>& x) {
    return std::abs(*std::ranges::max_element(x, {}, [](double y) { return std::abs(y); }));
  };
  const auto operand = [&](const std::vector<double>& x) {
    return TestTensor(DType::kF32, {std::ssize(x) / (kKvHeads * width), kKvHeads, width}, x);
  };
  const TestTensor query(DType::kF32, {70, kHeads, width}, q), key = operand(k), value = operand(v);
  for (const auto& [window, soft_cap] : {std::pair{0, 0.0}, {33, 0.0}, {33, 0.6}}) {
    const PagedAttentionArgs args{
        .scale = scale, .window = window, .max_queries = 70, .soft_cap = soft_cap};
    for_each_kernel([&](Ctx& ctx) {
      Pool pool(type, width), exact({DType::kF32}, width), rounded({DType::kF32}, width);
      paged_append(ctx, pool.k, pool.v, key, value, slots, pool.scales());
      paged_append(ctx, exact.k, exact.v, key, value, slots);
      Pool values(type, width);  // uses the pool's keys as values
      paged_append(ctx, values.k, values.v, value, value, slots, values.scales());
      std::ranges::copy(pool.keys(), rounded.k->as<float>());
      std::ranges::copy(values.keys(), rounded.v->as<float>());
      TestTensor got(DType::kF32, query->shape()), same(DType::kF32, query->shape()),
          want(DType::kF32, query->shape());
      paged_attention(ctx, got, query, pool.k, pool.v, blocks, cu, lens, args, pool.scales());
      paged_attention(ctx, same, query, rounded.k, rounded.v, blocks, cu, lens, args);
      paged_attention(ctx, want, query, exact.k, exact.v, blocks, cu, lens, args);
      EXPECT_EQ(compare(*got, to_doubles(*same), between_computations(DType::kF32, width + keys)),
                "");
      const std::vector<double> a = to_doubles(*got), b = to_doubles(*want);
      for (size_t row = 0; row < 70 * kHeads; ++row) {
        double sum = 0;
        for (size_t i = row * width; i < (row + 1) * width; ++i) sum += std::abs(q[i]);
        const double allowed = kv_attention_error(type, scale, sum, most(k), most(v)) +
                               most(v) * between_computations(DType::kF32, width + keys).relative;
        for (size_t i = row * width; i < (row + 1) * width; ++i)
          EXPECT_NEAR(a[i], b[i], allowed) << i;
      }
      return outputs(std::move(got));
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Types, PagedTypes, testing::ValuesIn(kTypes),
                         [](const auto& one) { return text(one.param); });

// A row with a value that is not finite is NaN and affects only the queries that attend to it;
// large values keep their size.
TEST(PagedCodes, KeepHostileRowsToThemselves) {
  const int64_t width = 24, keys = 40;
  const double large = 0x1p126;
  for (const KvCodes codes : {KvCodes::kInt8, KvCodes::kE4M3, KvCodes::kE5M2})
    for (const double hostile : {kNan, kInfinity, -kInfinity, large}) {
      std::vector<double> k(static_cast<size_t>(keys * kKvHeads * width)), v = k;
      for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<double>(i % 7) - 3;
      // In token 35, head 1. All keys are zero, so that they have equal weights.
      v[(35 * kKvHeads + 1) * width + 5] = hostile;
      v[(2 * kKvHeads) * width] = 0x1p-120;
      for (int64_t i = 1; i < width; ++i) v[static_cast<size_t>(2 * kKvHeads * width + i)] = 0;
      const TestTensor key(DType::kF32, {keys, kKvHeads, width}, k),
          value(DType::kF32, {keys, kKvHeads, width}, v);
      const TestTensor query(DType::kF32, {keys, kHeads, width},
                             normals("q", keys * kHeads * width));
      const std::vector<int32_t> table = {5, 2, 7};
      const TestTensor slots({keys}, slots_of(table, keys)), blocks({1, 3}, table);
      const TestTensor cu({2}, std::vector<int32_t>{0, 40}), lens({1}, std::vector<int32_t>{40});
      for_each_kernel([&](Ctx& ctx) {
        Pool pool({DType::kU8, codes}, width);
        paged_append(ctx, pool.k, pool.v, key, value, slots, pool.scales());
        EXPECT_EQ(pool.v_scale->as<float>()[(5 * kKvHeads) * kAttentionBlock + 2], 0)
            << "a row next to nothing";
        TestTensor out(DType::kF32, {keys, kHeads, width});
        paged_attention(ctx, out, query, pool.k, pool.v, blocks, cu, lens,
                        {.scale = 1, .max_queries = keys}, pool.scales());
        for (int64_t t = 0; t < keys; ++t)
          for (int64_t h = 0; h < kHeads; ++h) {
            const float one = out->as<float>()[(t * kHeads + h) * width + 5];
            const bool sees = t >= 35 && h >= kHeads / kKvHeads;
            if (!sees)
              EXPECT_LE(std::abs(one), 3.0f * 17 / 16) << t << " " << h;
            else if (hostile == large)
              EXPECT_NEAR(one, large / static_cast<double>(t + 1), large * 1e-5);
            else
              EXPECT_TRUE(std::isnan(one)) << t << " " << h << " " << one;
          }
        // NaN differs from itself: compare the rest.
        for (float& x : std::span(out->as<float>(), static_cast<size_t>(out->numel())))
          if (std::isnan(x)) x = 0;
        return outputs(std::move(out));
      });
    }
}

TEST(PagedCodes, AreRefusedWhereNothingReadsThem) {
  Ctx ctx(1, "test");
  Pool pool({DType::kU8, KvCodes::kInt8}, 8);
  const TestTensor rows(DType::kF32, {1, kKvHeads, 8}), wide(DType::kF64, {1, kKvHeads, 8});
  const TestTensor slots({1}, std::vector<int64_t>{0});
  EXPECT_THROW(paged_append(ctx, pool.k, pool.v, rows, rows, slots), Error);  // needs a code format
  EXPECT_THROW(paged_append(ctx, pool.k, pool.v, wide, wide, slots, pool.scales()), Error);
  EXPECT_THROW(paged_gather(ctx, rows, rows, pool.k, pool.v, slots), Error);
  PagedScales short_one = pool.scales();
  short_one.v = short_one.v.slice(2, 0, 3);
  EXPECT_THROW(paged_append(ctx, pool.k, pool.v, rows, rows, slots, short_one), Error);
}

}  // namespace
}  // namespace trireme::test::test_paged_codes
