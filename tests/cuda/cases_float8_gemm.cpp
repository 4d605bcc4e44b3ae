#include "engine/ops/quantized/float8_gemm.h"
#include "tests/cuda/registry.h"

namespace trireme::test {
namespace {

constexpr auto kE4M3 = Float8Format::kE4M3, kE5M2 = Float8Format::kE5M2;

struct Form {
  Float8Format a = kE4M3, b = kE4M3;
  Float8Scaling of_a = Float8Scaling::kTensor, of_b = Float8Scaling::kTensor;
  bool accumulate = false;
};

const char* scalings(const Form& f) {
  if (f.of_a == Float8Scaling::kTensor) return "";
  if (f.of_a == Float8Scaling::kBlock) return " blocks x rows";
  return f.of_b == Float8Scaling::kBlock ? " rows x blocks" : " rows x rows";
}

std::string describe(int64_t m, int64_t n, int64_t k, const Form& f) {
  return concat("(", m, ", ", k, ") x (", k, ", ", n, ")", f.a == kE5M2 ? " A e5m2" : "",
                f.b == kE5M2 ? " B e5m2" : "", scalings(f), f.accumulate ? " added" : "");
}

// Values up to 28 in magnitude, of both signs.
Float8Matrix matrix(OpRun& run, const std::string& name, int64_t rows, int64_t columns,
                    Float8Format format, Float8Scaling scaling) {
  const int64_t n = rows * columns;
  std::vector<double> codes, inverses;
  const int top = format == kE4M3 ? 0x5e : 0x4f;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t word = philox_word({3, stream_id(name)}, static_cast<uint64_t>(i));
    codes.push_back(static_cast<double>(word % static_cast<uint32_t>(top) + (word >> 31) * 128));
  }
  const Shape groups = float8_inverse_shape(scaling, {rows, columns});
  for (int64_t i = 0; i < groups.numel(); ++i)
    inverses.push_back(scaling == Float8Scaling::kTensor ? 0.013 + 0.1 * (name == "a")
                                                         : 0.3 + 0.07 * static_cast<double>(i % 9));
  return {.codes = run.values(name, DType::kU8, {rows, columns}, codes),
          .inverse = run.values(concat(name, ".inverse"), DType::kF32, groups, inverses),
          .format = format,
          .scaling = scaling};
}

OpCase gemm_case(int64_t m, int64_t n, int64_t k, DType out, const Form& f, bool large = false) {
  const auto body = [=](OpRun& run) {
    const Float8Matrix a = matrix(run, "a", m, k, f.a, f.of_a),
                       b = matrix(run, "b", n, k, f.b, f.of_b);
    Close close = whole(k + 2);
    // FP8 tensor cores of Hopper and Ada keep about 13 fractional bits while they sum products, and
    // truncate the rest: once in each of the four instructions whose sum is then added in float32.
    // Where C is float64 there are no FP8 products.
    if (out != DType::kF64) close.units = 4 * 0x1p-13;
    const Tensor c =
        f.accumulate ? run.updated("c", out, {m, n}, close) : run.output("c", out, {m, n}, close);
    float8_gemm(run.ctx, c, a, b, f.accumulate);
  };
  return {.op = "float8_gemm",
          .shape = describe(m, n, k, f),
          .dtype = out,
          .body = body,
          .flops = 2.0 * static_cast<double>(m) * static_cast<double>(n * k),
          .any_alignment = false,
          .large = large};
}

}  // namespace

std::vector<OpCase> float8_gemm_cases() {
  constexpr auto kRowGroup = Float8Scaling::kRowGroup, kBlock = Float8Scaling::kBlock;
  std::vector<OpCase> cases;
  for (DType out : {DType::kF64, DType::kF32, DType::kBF16}) {
    for (bool accumulate : {false, true}) {
      cases.push_back(gemm_case(1, 16, 16, out, {.accumulate = accumulate}));
      cases.push_back(gemm_case(7, 48, 32, out, {.accumulate = accumulate}));
      cases.push_back(gemm_case(33, 16, 144, out, {.a = kE5M2, .accumulate = accumulate}));
      cases.push_back(gemm_case(20, 32, 64, out, {.b = kE5M2, .accumulate = accumulate}));
      cases.push_back(gemm_case(12, 144, 672, out,
                                {.of_a = kRowGroup, .of_b = kBlock, .accumulate = accumulate}));
      cases.push_back(gemm_case(132, 16, 160, out,
                                {.of_a = kBlock, .of_b = kRowGroup, .accumulate = accumulate}));
      cases.push_back(
          gemm_case(4, 32, 272, out,
                    {.a = kE5M2, .of_a = kRowGroup, .of_b = kRowGroup, .accumulate = accumulate}));
    }
    cases.push_back(gemm_case(0, 16, 16, out, {}));
    cases.push_back(gemm_case(8192, 8192, 8192, out, {}, true));
    cases.push_back(gemm_case(8192, 8192, 8192, out, {.of_a = kRowGroup, .of_b = kBlock}, true));
    cases.push_back(gemm_case(8192, 8192, 8192, out, {.of_a = kRowGroup, .of_b = kRowGroup}, true));
  }
  return cases;
}

}  // namespace trireme::test
