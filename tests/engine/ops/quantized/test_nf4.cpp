#include <algorithm>
#include <array>
#include <cmath>

#include "engine/ops/quantized/nf4.h"
#include "tests/support/op_run.h"

namespace trireme::test::test_nf4 {
namespace {

constexpr int64_t kRows = 5, kColumns = 150, kBlocks = 3;

// The quantiles as published by the paper's authors.
constexpr std::array<float, 16> kValues = {-1.0f,
                                           -0.6961928009986877f,
                                           -0.5250730514526367f,
                                           -0.39491748809814453f,
                                           -0.28444138169288635f,
                                           -0.18477343022823334f,
                                           -0.09105003625154495f,
                                           0.0f,
                                           0.07958029955625534f,
                                           0.16093020141124725f,
                                           0.24611230194568634f,
                                           0.33791524171829224f,
                                           0.44070982933044434f,
                                           0.5626170039176941f,
                                           0.7229568362236023f,
                                           1.0f};

size_t nearest(float x) {
  size_t best = 0;
  for (size_t i = 1; i < kValues.size(); ++i)
    if (std::abs(kValues[i] - x) < std::abs(kValues[best] - x)) best = i;
  return best;
}

TEST(Nf4, TakesTheNearestValueOfABlock) {
  for (DType dtype : kFloatTypes) {
    std::vector<double> values = normals("w", kRows * kColumns);
    std::fill_n(values.begin() + 64, 64, 0.0);  // a block of zeros
    const TestTensor w(dtype, {kRows, kColumns}, values);
    const std::vector<double> x = to_doubles(*w);
    for_each_kernel([&](Ctx& ctx) {
      TestTensor codes(DType::kU8, {kRows, kColumns / 2}), scale(DType::kF32, {kRows, kBlocks});
      TestTensor back(dtype, {kRows, kColumns});
      quantize_nf4(ctx, codes, scale, w);
      dequantize_nf4(ctx, back, codes, {.scale = *scale});
      std::vector<double> want;
      for (int64_t i = 0; i < kRows * kColumns; ++i) {
        const int64_t r = i / kColumns, b = i % kColumns / 64;
        const auto first = x.begin() + r * kColumns + b * 64;
        float largest = 0;
        for (int64_t k = 0; k < std::min<int64_t>(64, kColumns - b * 64); ++k)
          largest = std::max(largest, std::abs(static_cast<float>(first[k])));
        EXPECT_EQ(scale->as<float>()[r * kBlocks + b], largest);
        const float scaled =
            largest > 0 ? static_cast<float>(x[static_cast<size_t>(i)]) / largest : 0.0f;
        const int byte = codes->as<uint8_t>()[i / 2], code = i % 2 == 0 ? byte >> 4 : byte & 15;
        EXPECT_EQ(static_cast<size_t>(code), nearest(scaled)) << i;
        want.push_back(static_cast<double>(kValues[static_cast<size_t>(code)] * largest));
      }
      EXPECT_EQ(to_doubles(*back), stored(dtype, want));
      return outputs(codes, scale, back);
    });
  }
}

// Part of a weight, whose scales are in the middle of the groups of scales.
TEST(Nf4, DoubleQuantizationOfAPart) {
  constexpr int64_t kRows2 = 150, kWide = 3, kPart = 2;  // blocks; two groups of 256 scales
  Ctx ctx(1, "test");
  std::vector<double> values = normals("scale", kRows2 * kWide);
  // The scales of the first group differ little, those of the second much: 0.5 ... 2.
  for (size_t i = 0; i < values.size(); ++i)
    values[i] =
        i < 256 ? 1.45 + 0.01 * std::sin(values[i]) : 0.5 + 1.5 * std::abs(std::sin(3 * values[i]));
  const TestTensor scale(DType::kF32, {kRows2 * kWide}, values);
  TestTensor scale_codes(DType::kU8, {kRows2 * kWide}), groups(DType::kF32, {2});
  TestTensor offset(DType::kF32, {1});
  quantize_nf4_scales(scale_codes, groups, offset, scale);
  const std::vector<double> all = to_doubles(*scale);
  double mean = 0;
  for (double s : all) mean += s / static_cast<double>(all.size());
  EXPECT_NEAR(to_doubles(*offset)[0], mean, 1e-6);
  TestTensor part(DType::kU8, {kRows2, kPart}), codes(DType::kU8, {kRows2, kPart * 32});
  for (int64_t r = 0; r < kRows2; ++r)
    for (int64_t b = 0; b < kPart; ++b)
      part->as<uint8_t>()[r * kPart + b] = scale_codes->as<uint8_t>()[r * kWide + 1 + b];
  std::fill_n(codes->as<uint8_t>(), codes->numel(), uint8_t{0xf0});  // 1, -1
  for_each_kernel([&](Ctx& of_isa) {
    TestTensor w(DType::kF32, {kRows2, kPart * 64});
    dequantize_nf4(
        of_isa, w, codes,
        {.codes = *part, .groups = *groups, .offset = *offset, .first = 1, .stride = kWide});
    const auto* const got = w->as<float>();
    for (int64_t r = 0; r < kRows2; ++r)
      for (int64_t c = 0; c < kPart * 64; ++c) {
        const double s = all[static_cast<size_t>(r * kWide + 1 + c / 64)];
        // The type's largest steps are 0.014 of the largest difference from the mean.
        EXPECT_NEAR(got[r * kPart * 64 + c], c % 2 == 0 ? s : -s, 0.0075) << r << " " << c;
      }
    return outputs(w);
  });
}

TEST(Nf4, RefusesOtherShapesAndTypes) {
  Ctx ctx(1, "test");
  const TestTensor w(DType::kF32, {2, 66}), odd(DType::kF32, {2, 65}), codes(DType::kU8, {2, 33});
  const TestTensor scale(DType::kF32, {2, 2}), one(DType::kF32, {1}), narrow(DType::kF32, {2, 1});
  const TestTensor scale_codes(DType::kU8, {2, 2});
  EXPECT_THROW(quantize_nf4(ctx, codes, narrow, w), Error);
  EXPECT_THROW(quantize_nf4(ctx, w, scale, w), Error);
  EXPECT_THROW(dequantize_nf4(ctx, odd, codes, {.scale = *scale}), Error);
  EXPECT_THROW(dequantize_nf4(ctx, w, codes, {}), Error);
  EXPECT_THROW(
      dequantize_nf4(ctx, w, codes,
                     {.codes = *scale_codes, .groups = *one, .offset = *one, .first = 254}),
      Error);
  EXPECT_THROW(dequantize_nf4(ctx, w, codes,
                              {.codes = *scale_codes, .groups = *one, .offset = *one, .stride = 1}),
               Error);
}

TEST(Nf4, PlanningWritesNothing) {
  const TestTensor w(DType::kF32, {2, 4}, normals("w", 8)), codes(DType::kU8, {2, 2});
  const TestTensor scale(DType::kF32, {2, 1}), y(DType::kBF16, {2, 4});
  expect_plannable(
      [&](Ctx& ctx) {
        quantize_nf4(ctx, codes, scale, w);
        dequantize_nf4(ctx, y, codes, {.scale = *scale});
      },
      {&codes, &scale, &y});
}

}  // namespace
}  // namespace trireme::test::test_nf4
