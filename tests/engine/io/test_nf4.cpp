// 4-bit weights have the same bytes as in bitsandbytes (tests/golden/make_nf4.py).
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/io/safetensors.h"
#include "engine/ops/quantized/nf4.h"
#include "tests/support/op_run.h"
#include "tests/support/source_folder.h"

namespace trireme::test::test_nf4 {
namespace {

TEST(Nf4, IsThatOfBitsandbytes) {
  const SafetensorsReader golden(concat(test::source_folder(), "/tests/golden/nf4.safetensors"));
  const ConstTensor w = golden.tensor("w");
  const Shape blocks{w.size(0), w.size(1) / kNf4Block};
  const int64_t n = blocks.numel();
  for_each_kernel([&](Ctx& ctx) {
    TestTensor codes(DType::kU8, {w.size(0), w.size(1) / 2}), scale(DType::kF32, blocks);
    quantize_nf4(ctx, codes, scale, w);
    EXPECT_EQ(to_doubles(*codes), to_doubles(golden.tensor("codes")));
    EXPECT_EQ(to_doubles(*scale), to_doubles(golden.tensor("scale")));
    TestTensor back(DType::kBF16, w.shape()), doubled(DType::kBF16, w.shape());
    dequantize_nf4(ctx, back, codes, {.scale = *scale});
    EXPECT_EQ(to_doubles(*back), to_doubles(golden.tensor("dequantised")));
    TestTensor scale_codes(DType::kU8, blocks), offset(DType::kF32, {1});
    TestTensor groups(DType::kF32, {ceil_div(n, kNf4ScaleGroup)});
    quantize_nf4_scales(scale_codes->reshape({n}), groups, offset, scale->reshape({n}));
    EXPECT_EQ(to_doubles(*scale_codes), to_doubles(golden.tensor("double.codes")));
    EXPECT_EQ(to_doubles(*groups), to_doubles(golden.tensor("double.groups")));
    EXPECT_EQ(to_doubles(*offset), to_doubles(golden.tensor("double.offset")));
    dequantize_nf4(ctx, doubled, codes,
                   {.codes = *scale_codes, .groups = *groups, .offset = *offset});
    EXPECT_EQ(to_doubles(*doubled), to_doubles(golden.tensor("double.dequantised")));
    // With codes of value 1: the scales, bitwise.
    std::fill_n(codes->as<uint8_t>(), codes->numel(), uint8_t{0xff});
    TestTensor ones(DType::kF32, w.shape());
    dequantize_nf4(ctx, ones, codes, {.codes = *scale_codes, .groups = *groups, .offset = *offset});
    const ConstTensor scales = golden.tensor("double.scale");
    for (int64_t i = 0; i < w.numel(); ++i)
      EXPECT_EQ(ones->as<float>()[i], scales.as<float>()[i / kNf4Block]) << i;
    return outputs(codes, scale, back, doubled, scale_codes);
  });
}

}  // namespace
}  // namespace trireme::test::test_nf4
