#include "engine/ops/quantized/float8_gemm.h"
#include "tests/support/op_run.h"

namespace trireme::test::test_float8_gemm {
namespace {

struct Operand {
  TestTensor codes, inverse;
  Float8Matrix matrix;
  std::vector<double> values;  // dequantized values
};

Operand operand(const std::string& name, int64_t rows, int64_t columns, Float8Format format,
                Float8Scaling scaling) {
  Ctx ctx(1, "test");
  const Shape shape{rows, columns};
  const TestTensor x(DType::kF32, shape, normals(name, rows * columns));
  Operand out{.codes = TestTensor(DType::kU8, shape),
              .inverse = TestTensor(DType::kF32, float8_inverse_shape(scaling, shape)),
              .matrix = {},
              .values = {}};
  if (scaling == Float8Scaling::kTensor)
    quantize_float8(ctx, out.codes, out.inverse, x, TestTensor(DType::kF32, {1}, {37.5}), format);
  else
    quantize_float8_groups(ctx, out.codes, out.inverse, x, format, scaling);
  const TestTensor wide(DType::kF64, shape);
  dequantize_float8(ctx, wide, out.codes, out.inverse, format, scaling);
  out.values = to_doubles(*wide);
  out.matrix = {*out.codes, *out.inverse, format, scaling};
  return out;
}

TEST(Float8Gemm, IsTheProductOfWhatTheCodesStandFor) {
  constexpr auto kE4M3 = Float8Format::kE4M3, kE5M2 = Float8Format::kE5M2;
  constexpr auto kTensor = Float8Scaling::kTensor;
  const int64_t m = 8, n = 32, k = 144;
  const std::vector<double> before = stored(DType::kBF16, normals("c", m * n));
  for (const auto& [format_a, scaling_a, scaling_b] :
       {std::tuple(kE4M3, kTensor, kTensor), std::tuple(kE5M2, kTensor, kTensor),
        std::tuple(kE4M3, Float8Scaling::kRowGroup, Float8Scaling::kBlock),
        std::tuple(kE5M2, Float8Scaling::kRowGroup, Float8Scaling::kRowGroup)}) {
    const Operand a = operand("a", m, k, format_a, scaling_a),
                  b = operand("b", n, k, kE4M3, scaling_b);
    for (bool accumulate : {false, true}) {
      std::vector<double> want(static_cast<size_t>(m * n));
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
          double sum = accumulate ? before[static_cast<size_t>(i * n + j)] : 0;
          for (int64_t x = 0; x < k; ++x)
            sum +=
                a.values[static_cast<size_t>(i * k + x)] * b.values[static_cast<size_t>(j * k + x)];
          want[static_cast<size_t>(i * n + j)] = sum;
        }
      for (DType out : {DType::kF64, DType::kF32, DType::kBF16})
        for_each_kernel([&](Ctx& ctx) {
          TestTensor c(out, {m, n}, before);
          float8_gemm(ctx, c, a.matrix, b.matrix, accumulate);
          EXPECT_CLOSE(c, want, tolerance(out, k + 2));
          return outputs(c);
        });
    }
  }
}

TEST(Float8Gemm, RefusesWhatTheLibraryCannot) {
  Ctx ctx(1, "test");
  const auto multiply = [&](int64_t n, int64_t k, Float8Format format) {
    const Operand a = operand("a", 3, k, format, Float8Scaling::kTensor),
                  b = operand("b", n, k, format, Float8Scaling::kTensor);
    float8_gemm(ctx, TestTensor(DType::kF32, {3, n}), a.matrix, b.matrix, false);
  };
  multiply(16, 32, Float8Format::kE4M3);
  EXPECT_THROW(multiply(24, 32, Float8Format::kE4M3), InputError);
  EXPECT_THROW(multiply(16, 20, Float8Format::kE4M3), InputError);
  EXPECT_THROW(multiply(16, 32, Float8Format::kE5M2), Error);
  const auto in_groups = [&](int64_t m, Float8Scaling of_a, Float8Scaling of_b) {
    const Operand a = operand("a", m, 32, Float8Format::kE4M3, of_a),
                  b = operand("b", 16, 32, Float8Format::kE4M3, of_b);
    float8_gemm(ctx, TestTensor(DType::kF32, {m, 16}), a.matrix, b.matrix, false);
  };
  in_groups(4, Float8Scaling::kBlock, Float8Scaling::kRowGroup);
  EXPECT_THROW(in_groups(6, Float8Scaling::kRowGroup, Float8Scaling::kBlock), InputError);
  EXPECT_THROW(in_groups(4, Float8Scaling::kBlock, Float8Scaling::kBlock), Error);
  EXPECT_THROW(in_groups(4, Float8Scaling::kTensor, Float8Scaling::kBlock), Error);
  const Operand a = operand("a", 16, 32, Float8Format::kE4M3, Float8Scaling::kTensor);
  EXPECT_THROW(float8_gemm(ctx, TestTensor(DType::kF16, {16, 16}), a.matrix, a.matrix, false),
               Error);
  EXPECT_THROW(float8_gemm(ctx, TestTensor(DType::kF32, {16, 32}), a.matrix, a.matrix, false),
               Error);
}

TEST(Float8Gemm, PlanningWritesNothing) {
  const Operand a = operand("a", 16, 32, Float8Format::kE4M3, Float8Scaling::kTensor);
  const TestTensor c(DType::kBF16, {16, 16});
  expect_plannable([&](Ctx& ctx) { float8_gemm(ctx, c, a.matrix, a.matrix, true); }, {&c});
}

}  // namespace
}  // namespace trireme::test::test_float8_gemm
