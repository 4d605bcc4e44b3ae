#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "engine/ops/compression/block_code.h"
#include "tests/support/op_run.h"

namespace trireme::test::test_block_code {
namespace {

constexpr int64_t kRows = 3, kColumns = 301;

// Reference of one block, in the arithmetic of the header: F is float, or double for a float64 x.
template <class F>
struct Decoded {
  float scale = 0;
  std::vector<int> code;
  std::vector<F> y, residual;
};

template <class F>
F mean_magnitude(const std::vector<F>& v) {
  std::array<F, 32> sums{};
  for (size_t i = 0; i < v.size(); ++i) sums[i % 32] += std::abs(v[i]);
  for (size_t half = 16; half > 0; half /= 2)
    for (size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  return sums[0] / static_cast<F>(v.size());
}

template <class F>
Decoded<F> reference(const std::vector<F>& v, int bits) {
  F largest = 0;
  for (F x : v) largest = std::max(largest, std::abs(x));
  Decoded<F> out;
  out.scale = static_cast<float>(bits == 1   ? mean_magnitude(v)
                                 : bits == 4 ? largest / F(7)
                                             : largest / F(127));
  if (out.scale < std::numeric_limits<float>::min()) out.scale = 0;
  const F scale = static_cast<F>(out.scale), inverse = scale > 0 ? F(1) / scale : F(0);
  for (F x : v) {
    const F scaled = x * inverse;
    const int multiple = bits == 1 ? (x >= 0 ? 1 : -1) : static_cast<int>(std::nearbyint(scaled));
    out.code.push_back(bits == 8 ? multiple & 255 : bits == 4 ? multiple + 8 : (multiple + 1) / 2);
    const F y = scale * static_cast<F>(multiple);
    out.y.push_back(y);
    out.residual.push_back(x - y);
  }
  return out;
}

int code_at(const uint8_t* codes, int bits, int64_t i) {
  return codes[i * bits / 8] >> (i * bits % 8) & ((1 << bits) - 1);
}

std::vector<double> large_and_small() {
  std::vector<double> values = normals("x", kRows * kColumns);
  std::fill_n(values.begin() + 40, 40, 0.0);             // a block of zeros with blocks of 40
  std::fill_n(values.begin() + 80, 40, 1e-39);           // scales below the normal numbers
  for (size_t i = 120; i < 160; ++i) values[i] *= 1e30;  // a large block
  return values;
}

template <class F>
void check_block(const std::vector<F>& v, int bits, float scale, const uint8_t* codes,
                 const double* y, const double* residual) {
  const Decoded<F> want = reference(v, bits);
  EXPECT_EQ(scale, want.scale);
  for (size_t i = 0; i < v.size(); ++i) {
    EXPECT_EQ(code_at(codes, bits, static_cast<int64_t>(i)), want.code[i]) << bits << " " << i;
    EXPECT_EQ(y[i], static_cast<double>(want.y[i]));
    EXPECT_EQ(residual[i], static_cast<double>(want.residual[i]));
    // The sum of what was sent and what is left is what was to be sent.
    EXPECT_NEAR(y[i] + residual[i], static_cast<double>(v[i]),
                4e-7 * std::abs(static_cast<double>(scale)) * 127);
  }
}

template <class F>
void check_matrix(const BlockCode& code, const std::vector<double>& x,
                  const std::vector<double>& before, const TestTensor& scale,
                  const TestTensor& codes, const TestTensor& y, const TestTensor& residual) {
  const std::vector<double> decoded = to_doubles(*y), left = to_doubles(*residual);
  const int64_t blocks = ceil_div(kColumns, code.block);
  for (int64_t r = 0; r < kRows; ++r)
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t begin = r * kColumns + b * code.block;
      const int64_t end = std::min(begin + code.block, (r + 1) * kColumns);
      std::vector<F> v;
      for (int64_t i = begin; i < end; ++i)
        v.push_back(static_cast<F>(x[static_cast<size_t>(i)]) +
                    static_cast<F>(before[static_cast<size_t>(i)]));
      check_block(v, code.bits, scale->as<float>()[r * blocks + b],
                  codes->as<uint8_t>() + r * codes->size(1) + b * code.block * code.bits / 8,
                  decoded.data() + begin, left.data() + begin);
    }
}

TEST(BlockCode, EqualsTheReference) {
  for (DType dtype : kFloatTypes)
    for (int bits : {8, 4, 1})
      for (int64_t block : {8, 40, 256, 1024}) {
        const BlockCode code{bits, block};
        const int64_t blocks = ceil_div(kColumns, block), bytes = block_code_bytes(code, kColumns);
        const DType sum = sum_dtype(dtype);
        const Shape shape{kRows, kColumns};
        std::vector<double> values = large_and_small();
        if (dtype == DType::kF16)  // its largest number is 65504
          for (double& v : values) v = std::clamp(v, -1000.0, 1000.0);
        const TestTensor x(dtype, shape, values);
        const std::vector<double> noise = normals("residual", kRows * kColumns);
        for_each_kernel([&](Ctx& ctx) {
          TestTensor residual(sum, shape, noise);
          const std::vector<double> before = to_doubles(*residual);
          TestTensor scale(DType::kF32, {kRows, blocks}), codes(DType::kU8, {kRows, bytes});
          TestTensor y(sum, shape);
          encode_blocks(ctx, code, scale, codes, x, residual);
          decode_blocks(ctx, code, y, scale, codes, false);
          if (sum == DType::kF64)
            check_matrix<double>(code, to_doubles(*x), before, scale, codes, y, residual);
          else
            check_matrix<float>(code, to_doubles(*x), before, scale, codes, y, residual);
          return outputs(scale, codes, y, residual);
        });
      }
}

TEST(BlockCode, AddsToWhatIsThereAndRoundsOnce) {
  const BlockCode code{8, 16};
  const Shape shape{2, 20};
  for (DType dtype : kFloatTypes) {
    const TestTensor x(dtype, shape, normals("x", 40));
    for_each_kernel([&](Ctx& ctx) {
      TestTensor scale(DType::kF32, {2, 2}), codes(DType::kU8, {2, 20});
      encode_blocks(ctx, code, scale, codes, x, {});
      TestTensor y(dtype, shape, normals("y", 40)), exact(sum_dtype(dtype), shape);
      std::vector<double> want = to_doubles(*y);
      decode_blocks(ctx, code, exact, scale, codes, false);
      const std::vector<double> decoded = to_doubles(*exact);
      for (size_t i = 0; i < want.size(); ++i)
        want[i] =
            dtype == DType::kF64
                ? want[i] + decoded[i]
                : static_cast<double>(static_cast<float>(want[i]) + static_cast<float>(decoded[i]));
      decode_blocks(ctx, code, y, scale, codes, true);
      EXPECT_EQ(to_doubles(*y), stored(dtype, want));
      return outputs(scale, codes, y);
    });
  }
}

TEST(BlockCode, PartsOfWholeBlocksHaveTheSameCodes) {
  Ctx ctx(1, "test");
  for (int bits : {8, 4, 1}) {
    const BlockCode code{bits, 32};
    const TestTensor x(DType::kF32, {1, 100}, normals("x", 100));
    TestTensor scale(DType::kF32, {1, 4}), codes(DType::kU8, {1, block_code_bytes(code, 100)});
    encode_blocks(ctx, code, scale, codes, x, {});
    const std::vector<double> values = to_doubles(*x);
    const TestTensor part(DType::kF32, {1, 36}, {values.begin() + 64, values.end()});
    TestTensor part_scale(DType::kF32, {1, 2});
    TestTensor part_codes(DType::kU8, {1, block_code_bytes(code, 36)});
    encode_blocks(ctx, code, part_scale, part_codes, part, {});
    EXPECT_TRUE(
        std::equal(part_scale->as<float>(), part_scale->as<float>() + 2, scale->as<float>() + 2));
    EXPECT_TRUE(std::equal(part_codes->as<uint8_t>(),
                           part_codes->as<uint8_t>() + part_codes->numel(),
                           codes->as<uint8_t>() + 64 * bits / 8));
  }
}

// A NaN or an infinity shows in the decoded block and leaves its residual as it was.
TEST(BlockCode, ShowsElementsThatAreNotFinite) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (double bad : {kNan, -kNan, std::numeric_limits<double>::infinity(),
                     -std::numeric_limits<double>::infinity()})
    for (int bits : {8, 4, 1})
      for_each_kernel([&](Ctx& ctx) {
        std::vector<double> values = normals("x", 64);
        values[37] = bad;
        const TestTensor x(DType::kF32, {1, 64}, values);
        const std::vector<double> noise = normals("residual", 64);
        TestTensor residual(DType::kF32, {1, 64}, noise);
        const std::vector<double> before = to_doubles(*residual);
        TestTensor scale(DType::kF32, {1, 2});
        TestTensor codes(DType::kU8, {1, block_code_bytes({bits, 32}, 64)});
        encode_blocks(ctx, {bits, 32}, scale, codes, x, residual);
        EXPECT_TRUE(std::isfinite(scale->as<float>()[0]));
        EXPECT_FALSE(std::isfinite(scale->as<float>()[1]));
        TestTensor y(DType::kF32, {1, 64});
        decode_blocks(ctx, {bits, 32}, y, scale, codes, false);
        EXPECT_TRUE(std::isfinite(to_doubles(*y)[0]));
        EXPECT_FALSE(std::isfinite(to_doubles(*y)[32]));
        const std::vector<double> after = to_doubles(*residual);
        EXPECT_TRUE(std::equal(after.begin() + 32, after.end(), before.begin() + 32));
        EXPECT_NE(after[0], before[0]);
        return outputs(codes, residual);
      });
}

TEST(BlockCode, RefusesOtherCodesAndShapes) {
  Ctx ctx(1, "test");
  const TestTensor x(DType::kF32, {2, 20}), scale(DType::kF32, {2, 2}), codes(DType::kU8, {2, 20});
  EXPECT_THROW(encode_blocks(ctx, {2, 16}, scale, codes, x, {}), Error);
  EXPECT_THROW(encode_blocks(ctx, {8, 0}, scale, codes, x, {}), Error);
  EXPECT_THROW(encode_blocks(ctx, {8, 12}, scale, codes, x, {}), Error);
  EXPECT_THROW(encode_blocks(ctx, {8, INT64_MAX - 7}, scale, codes, x, {}), Error);
  EXPECT_THROW(encode_blocks(ctx, {8, 8}, scale, codes, x, {}), Error);
  EXPECT_THROW(encode_blocks(ctx, {4, 16}, scale, codes, x, {}), Error);
  EXPECT_THROW(encode_blocks(ctx, {8, 16}, scale, codes, x, scale), Error);
  EXPECT_THROW(decode_blocks(ctx, {8, 16}, scale, scale, codes, false), Error);
}

TEST(BlockCode, PlanningWritesNothing) {
  const TestTensor x(DType::kF32, {2, 20}, normals("x", 40)), scale(DType::kF32, {2, 2});
  const TestTensor codes(DType::kU8, {2, 20}), y(DType::kF32, {2, 20});
  expect_plannable(
      [&](Ctx& ctx) {
        encode_blocks(ctx, {8, 16}, scale, codes, x, y);
        decode_blocks(ctx, {8, 16}, y, scale, codes, false);
      },
      {&scale, &codes, &y});
}

}  // namespace
}  // namespace trireme::test::test_block_code
