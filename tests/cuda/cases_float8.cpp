#include <limits>

#include "engine/ops/quantized/float8.h"
#include "tests/cuda/registry.h"

namespace trireme::test {
namespace {

constexpr auto kE4M3 = Float8Format::kE4M3, kE5M2 = Float8Format::kE5M2;
constexpr auto kTensor = Float8Scaling::kTensor, kRowGroup = Float8Scaling::kRowGroup,
               kBlock = Float8Scaling::kBlock;

struct Size {
  int64_t rows, columns;
  bool large = false;
};
// No elements, one, partial groups in both directions, and whole groups.
const std::vector<Size> kSizes = {
    {0, 8}, {1, 1}, {3, 7}, {9, 130}, {131, 48}, {128, 256}, {8192, 4096, true}};

const char* name(Float8Format format) { return format == kE4M3 ? " e4m3" : " e5m2"; }
const char* name(Float8Scaling scaling) {
  return scaling == kTensor ? " tensor" : scaling == kRowGroup ? " rows" : " blocks";
}

OpCase make(const char* op, const Size& s, std::string more, DType dtype,
            std::function<void(OpRun&)> body) {
  return {.op = op,
          .shape = concat("(", s.rows, ", ", s.columns, ")", more),
          .dtype = dtype,
          .body = std::move(body),
          .bytes = static_cast<double>(s.rows * s.columns * (dtype_size(dtype) + 1)),
          .large = s.large};
}

OpCase amax_case(const Size& s, DType dtype, bool accumulate) {
  return make("amax", s, accumulate ? " of more" : "", dtype, [=](OpRun& run) {
    const Tensor out = accumulate ? run.updated("out", DType::kF32, {1}, exact(), 0, 250)
                                  : run.output("out", DType::kF32, {1}, exact());
    amax(run.ctx, out, run.random("x", dtype, {s.rows, s.columns}, -300.0, 200.0), accumulate);
  });
}

// Values that are representable, that underflow, and that overflow.
OpCase quantize_case(const Size& s, DType dtype, Float8Format format, Float8Scaling scaling) {
  const Shape shape{s.rows, s.columns};
  const char* op = scaling == kTensor ? "quantize_float8" : "quantize_float8_groups";
  return make(op, s, concat(name(format), name(scaling)), dtype, [=](OpRun& run) {
    const Tensor codes = run.output("codes", DType::kU8, shape, exact());
    const Tensor inverse =
        run.output("inverse", DType::kF32, float8_inverse_shape(scaling, shape), exact());
    const ConstTensor x = run.random("x", dtype, shape, -4.0, 4.0);
    if (scaling != kTensor)
      return quantize_float8_groups(run.ctx, codes, inverse, x, format, scaling);
    const double scale = format == kE4M3 ? 150.3 : 20000.1;
    quantize_float8(run.ctx, codes, inverse, x, run.values("scale", DType::kF32, {1}, {scale}),
                    format);
  });
}

OpCase transposed_case(const Size& s, DType dtype, Float8Format format, Float8Scaling scaling) {
  const Shape shape{s.rows, s.columns}, turned{s.columns, s.rows};
  return make(
      "quantize_float8_transposed", s, concat(name(format), name(scaling)), dtype, [=](OpRun& run) {
        const Tensor codes = run.output("codes", DType::kU8, turned, exact());
        const Tensor inverse =
            run.output("inverse", DType::kF32, float8_inverse_shape(scaling, turned), exact());
        const ConstTensor x = run.random("x", dtype, shape, -4.0, 4.0);
        ConstTensor scale;
        if (scaling == kTensor) scale = run.values("scale", DType::kF32, {1}, {150.3});
        quantize_float8_transposed(run.ctx, codes, inverse, x, scale, format, scaling);
      });
}

OpCase dequantize_case(const Size& s, DType dtype, Float8Format format, Float8Scaling scaling) {
  const Shape shape{s.rows, s.columns};
  return make("dequantize_float8", s, concat(name(format), name(scaling)), dtype, [=](OpRun& run) {
    // Up to the largest finite code: above are infinity and NaN.
    const ConstTensor codes =
        run.integers("codes", DType::kU8, shape, 0, format == kE4M3 ? 0x7f : 0x7c);
    const ConstTensor inverse =
        run.random("inverse", DType::kF32, float8_inverse_shape(scaling, shape), 0.01, 0.02);
    dequantize_float8(run.ctx, run.output("y", dtype, shape, exact()), codes, inverse, format,
                      scaling);
  });
}

// Tensors without elements, with infinite and with unknown amax included.
const std::vector<double>& largest_values() {
  static const std::vector<double> values = {3.0,
                                             0.0,
                                             std::numeric_limits<double>::infinity(),
                                             std::numeric_limits<double>::quiet_NaN(),
                                             1e-38,
                                             700.5};
  return values;
}

OpCase scale_case(Float8Format format, int margin) {
  return make("scale_from_amax", {6, 1}, concat(name(format), " margin ", margin), DType::kF32,
              [=](OpRun& run) {
                scale_from_amax(run.ctx, run.output("scale", DType::kF32, {6}, exact()),
                                run.values("amax", DType::kF32, {6}, largest_values()), format,
                                margin);
              });
}

OpCase delayed_case(int64_t length, int margin) {
  return make("update_delayed_scale", {6, length}, concat(" margin ", margin), DType::kF32,
              [=](OpRun& run) {
                update_delayed_scale(
                    run.ctx, run.updated("scale", DType::kF32, {6}, exact()),
                    run.updated("history", DType::kF32, {6, length}, exact(), 0, 5),
                    run.values("amax", DType::kF32, {6}, largest_values()), kE4M3, margin);
              });
}

}  // namespace

std::vector<OpCase> float8_cases() {
  std::vector<OpCase> cases;
  for (DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16})
    for (const Size& s : kSizes) {
      for (bool accumulate : {false, true}) cases.push_back(amax_case(s, dtype, accumulate));
      for (Float8Format format : {kE4M3, kE5M2})
        for (Float8Scaling scaling : {kTensor, kRowGroup, kBlock}) {
          cases.push_back(quantize_case(s, dtype, format, scaling));
          cases.push_back(transposed_case(s, dtype, format, scaling));
          cases.push_back(dequantize_case(s, dtype, format, scaling));
        }
    }
  for (Float8Format format : {kE4M3, kE5M2})
    for (int margin : {0, 2}) cases.push_back(scale_case(format, margin));
  for (int64_t length : {1, 16, 1000}) cases.push_back(delayed_case(length, length == 16 ? 1 : 0));
  return cases;
}

}  // namespace trireme::test
