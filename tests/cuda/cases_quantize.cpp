#include "engine/ops/quantized/nf4.h"
#include "engine/ops/quantized/quantize.h"
#include "tests/cuda/registry.h"

namespace trireme::test {
namespace {

struct Size {
  int64_t rows, columns;
  bool large = false;
};
// No rows, less than a group, a partial group, whole groups with and without whole packs.
const std::vector<Size> kSizes = {{0, 8}, {1, 2}, {3, 130}, {9, 264}, {5, 256}, {8192, 4096, true}};

OpCase make(const char* op, const Size& s, const char* more, DType dtype, double bytes_an_element,
            std::function<void(OpRun&)> body) {
  return {.op = op,
          .shape = concat("(", s.rows, ", ", s.columns, ")", more),
          .dtype = dtype,
          .body = std::move(body),
          .bytes = bytes_an_element * static_cast<double>(s.rows * s.columns),
          .large = s.large};
}

void add_int8(std::vector<OpCase>& cases, const Size& s, DType dtype) {
  const Shape shape{s.rows, s.columns};
  const double bytes = 1.0 + static_cast<double>(dtype_size(dtype));
  cases.push_back(make("quantize_int8", s, "", dtype, bytes, [=](OpRun& run) {
    quantize_int8(run.ctx, run.output("codes", DType::kU8, shape, exact()),
                  run.output("scale", DType::kF32, {s.rows}, exact()),
                  run.random("w", dtype, shape, -1.0, 0.7));
  }));
  cases.push_back(make("dequantize_int8", s, "", dtype, bytes, [=](OpRun& run) {
    dequantize_int8(run.ctx, run.output("w", dtype, shape, exact()),
                    run.integers("codes", DType::kU8, shape, 0, 256),
                    run.random("scale", DType::kF32, {s.rows}, 0.01, 0.1));
  }));
}

// A product and a sum may be fused into one rounding.
void add_int4(std::vector<OpCase>& cases, const Size& s, DType dtype, bool symmetric) {
  const Shape shape{s.rows, s.columns}, packed{s.rows, s.columns / 2};
  const Shape groups{s.rows, ceil_div(s.columns, kInt4Group)};
  const char* more = symmetric ? " symmetric" : "";
  const double bytes = 0.5 + static_cast<double>(dtype_size(dtype));
  cases.push_back(make("quantize_int4", s, more, dtype, bytes, [=](OpRun& run) {
    quantize_int4(run.ctx, run.output("codes", DType::kU8, packed, exact()),
                  run.output("scale", DType::kF32, groups, exact()),
                  symmetric ? Tensor() : run.output("minimum", DType::kF32, groups, exact()),
                  run.random("w", dtype, shape, -1.0, 0.7));
  }));
  cases.push_back(make("dequantize_int4", s, more, dtype, bytes, [=](OpRun& run) {
    Close close = whole(2);
    close.computed = DType::kF32;
    dequantize_int4(
        run.ctx, run.output("w", dtype, shape, close),
        run.integers("codes", DType::kU8, packed, 0, 256),
        run.random("scale", DType::kF32, groups, 0.01, 0.1),
        symmetric ? ConstTensor() : run.random("minimum", DType::kF32, groups, -1.0, 0.0));
  }));
}

void add_nf4(std::vector<OpCase>& cases, const Size& s, DType dtype) {
  const Shape shape{s.rows, s.columns}, packed{s.rows, s.columns / 2};
  const Shape blocks{s.rows, ceil_div(s.columns, kNf4Block)};
  const double bytes = 0.5 + static_cast<double>(dtype_size(dtype));
  cases.push_back(make("quantize_nf4", s, "", dtype, bytes, [=](OpRun& run) {
    quantize_nf4(run.ctx, run.output("codes", DType::kU8, packed, exact()),
                 run.output("scale", DType::kF32, blocks, exact()),
                 run.random("w", dtype, shape, -1.0, 0.7));
  }));
  cases.push_back(make("dequantize_nf4", s, "", dtype, bytes, [=](OpRun& run) {
    dequantize_nf4(run.ctx, run.output("w", dtype, shape, exact()),
                   run.integers("codes", DType::kU8, packed, 0, 256),
                   {.scale = run.random("scale", DType::kF32, blocks, 0.01, 0.1)});
  }));
  // Part of a weight with twice as many columns.
  cases.push_back(make("dequantize_nf4", s, " double", dtype, bytes, [=](OpRun& run) {
    const int64_t stride = 2 * blocks[1], first = 200;
    const int64_t groups = ceil_div(first + s.rows * stride, kNf4ScaleGroup);
    dequantize_nf4(run.ctx, run.output("w", dtype, shape, exact()),
                   run.integers("codes", DType::kU8, packed, 0, 256),
                   {.codes = run.integers("scale codes", DType::kU8, blocks, 0, 256),
                    .groups = run.random("groups", DType::kF32, {groups}, 0.01, 0.1),
                    .offset = run.random("offset", DType::kF32, {1}, 0.1, 0.2),
                    .first = first,
                    .stride = stride});
  }));
}

}  // namespace

std::vector<OpCase> quantize_cases() {
  std::vector<OpCase> cases;
  for (DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16})
    for (const Size& s : kSizes) {
      add_int8(cases, s, dtype);
      add_nf4(cases, s, dtype);
      for (bool symmetric : {false, true}) add_int4(cases, s, dtype, symmetric);
    }
  return cases;
}

}  // namespace trireme::test
