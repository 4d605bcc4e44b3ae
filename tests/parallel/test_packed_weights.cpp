// 4-bit weights without a model: unpacked parts equal the op's result for the whole weight.
#include <gtest/gtest.h>

#include <limits>

#include "engine/core/normal_number.h"
#include "engine/ops/quantized/nf4.h"
#include "parallel/parameter_store.h"
#include "tests/support/compare.h"

namespace trireme::test::test_packed_weights {
namespace {

constexpr int64_t kRows = 2100, kColumns = 2048;  // read in several pieces

float element(int64_t index) {
  const RandomKey key{7, stream_id("weight")};
  return static_cast<float>(philox_normal(key, static_cast<uint64_t>(index))) *
         (1.0f + static_cast<float>(index % 3000) / 1000.0f);
}

ParameterList list(const TensorBox& box) {
  ParameterList list;
  list.add({.name = "trained.weight", .shape = {4, 64}, .linear = true});
  list.add({.name = "table", .shape = {4, 64}, .region = Region::kFrozen});
  list.add({.name = "w.weight",
            .shape = {kRows, kColumns},
            .box = box,
            .region = Region::kFrozen,
            .linear = true});
  return list;
}

void fill(const TensorBox& box, int64_t begin, const Tensor& to) {
  ASSERT_EQ(to.dtype(), DType::kF32);
  ASSERT_LE(begin + to.numel(), box.numel());
  for (int64_t i = 0; i < to.numel(); ++i) {
    const int64_t row = box.start[0] + (begin + i) / box.extent[1];
    to.as<float>()[i] = element(row * kColumns + box.start[1] + (begin + i) % box.extent[1]);
  }
}

std::vector<float> whole(Ctx& ctx, bool doubled) {
  const Shape shape{kRows, kColumns}, blocks{kRows, kColumns / 64};
  const int64_t n = blocks.numel();
  TestTensor w(DType::kF32, shape), codes(DType::kU8, {kRows, kColumns / 2});
  TestTensor scale(DType::kF32, blocks), scale_codes(DType::kU8, blocks), offset(DType::kF32, {1});
  TestTensor groups(DType::kF32, {ceil_div(n, 256)});
  fill(whole_box({kRows, kColumns}), 0, w->reshape({shape.numel()}));
  quantize_nf4(ctx, codes, scale, w);
  quantize_nf4_scales(scale_codes->reshape({n}), groups, offset, scale->reshape({n}));
  if (doubled)
    dequantize_nf4(ctx, w, codes, {.codes = *scale_codes, .groups = *groups, .offset = *offset});
  else
    dequantize_nf4(ctx, w, codes, {.scale = *scale});
  return {w->as<float>(), w->as<float>() + shape.numel()};
}

TEST(PackedWeights, ABoxHasTheBitsOfTheWhole) {
  Ctx ctx(1, "test");
  for (const bool doubled : {false, true}) {
    const std::vector<float> want = whole(ctx, doubled);
    for (const TensorBox& box :
         {TensorBox{}, TensorBox{{700, 0}, {700, kColumns}}, TensorBox{{0, 1024}, {kRows, 960}}}) {
      ParameterStore store(list(box), DType::kF32, {}, {true, doubled});
      EXPECT_FALSE(store.packed(0));
      EXPECT_FALSE(store.packed(1));
      ASSERT_TRUE(store.packed(2));
      EXPECT_EQ(store.value_bytes(), 2 * 4 * 64 * 4 + store.packed_bytes());
      store.allocate(ctx, false);
      store.pack(ctx, 2, fill);
      const Shape shape = store.shape(2, 2);
      TestTensor w(DType::kF32, shape);
      store.unpack(ctx, 2, 2, w);
      const int64_t first_row = box.extent.empty() ? 0 : box.start[0];
      const int64_t first_column = box.extent.empty() ? 0 : box.start[1];
      int64_t different = 0;
      for (int64_t i = 0; i < shape.numel(); ++i) {
        const int64_t at = (first_row + i / shape[1]) * kColumns + first_column + i % shape[1];
        different += w->as<float>()[i] != want[static_cast<size_t>(at)];
      }
      EXPECT_EQ(different, 0) << box.str();
      EXPECT_THROW(store.value(2), Error);
      EXPECT_THROW(store.pack(ctx, 1, fill), Error);
    }
  }
}

TEST(PackedWeights, RefuseWhatIsNotFinite) {
  Ctx ctx(1, "test");
  ParameterStore store(list({}), DType::kF32, {}, {true, false});
  store.allocate(ctx, false);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    EXPECT_THROW(store.pack(ctx, 2,
                            [&](const TensorBox& box, int64_t begin, const Tensor& piece) {
                              fill(box, begin, piece);
                              piece.as<float>()[5] = bad;
                            }),
                 InputError);
}

}  // namespace
}  // namespace trireme::test::test_packed_weights
