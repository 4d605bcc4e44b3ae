#include "engine/ops/rows/elementwise.h"
#include "engine/ops/rows/fill_normal.h"
#include "tests/cuda/registry.h"

namespace trireme::test {
namespace {

struct Size {
  int64_t rows, columns;
  bool large = false;
};
const std::vector<Size> kSizes = {{0, 8}, {1, 1}, {3, 7}, {5, 264}, {64, 520}, {8192, 8192, true}};

OpCase make(const char* op, const Size& s, DType dtype, int64_t bytes_an_element,
            std::function<void(OpRun&)> body) {
  return {.op = op,
          .shape = concat("(", s.rows, ", ", s.columns, ")"),
          .dtype = dtype,
          .body = std::move(body),
          .bytes = static_cast<double>(bytes_an_element * s.rows * s.columns),
          .large = s.large};
}

OpCase add_case(const Size& s, DType dtype) {
  const Shape shape{s.rows, s.columns};
  return make("add", s, dtype, 3 * dtype_size(dtype), [=](OpRun& run) {
    add(run.ctx, run.output("y", dtype, shape, exact()), run.random("a", dtype, shape),
        run.random("b", dtype, shape));
  });
}

OpCase scale_case(const Size& s, DType dtype, FactorRounding rounding) {
  const Shape shape{s.rows, s.columns};
  OpCase c = make("scale", s, dtype, 2 * dtype_size(dtype), [=](OpRun& run) {
    scale(run.ctx, run.output("y", dtype, shape, exact()), run.random("x", dtype, shape), 33.941,
          rounding);
  });
  if (rounding == FactorRounding::kProduct) c.shape += " unrounded factor";
  return c;
}

// Values of all magnitudes that both types represent; half of them are midway between two
// neighbours.
OpCase cast_case(const Size& s, DType from, DType to) {
  const Shape shape{s.rows, s.columns};
  OpCase c = make("cast", s, from, dtype_size(from) + dtype_size(to), [=](OpRun& run) {
    cast(run.ctx, run.output("y", to, shape, exact()), run.random("x", from, shape, -300.0, 300.0));
  });
  c.shape += concat(" to ", to);
  return c;
}

OpCase fill_case(const Size& s, DType dtype) {
  const Shape shape{s.rows, s.columns};
  return make("fill_zero", s, dtype, dtype_size(dtype),
              [=](OpRun& run) { fill_zero(run.ctx, run.output("y", dtype, shape, exact())); });
}

// Part of a box, from its third element on, whose rows are twice as wide in the whole tensor. The
// GPU uses its own sine and cosine.
OpCase fill_normal_case(const Size& s, DType dtype) {
  return make("fill_normal", s, dtype, dtype_size(dtype), [=](OpRun& run) {
    fill_normal(run.ctx, run.output("y", dtype, {s.rows * s.columns}, whole(1)), RandomKey{7, 80},
                0.02, {.first = 5, .width = s.columns, .stride = 2 * s.columns, .offset = 2});
  });
}

// Ranges: empty, whole, part of a row.
OpCase keep_case(const Size& s, DType dtype) {
  const Shape shape{s.rows, s.columns};
  return make("keep_columns", s, dtype, 2 * dtype_size(dtype), [=](OpRun& run) {
    keep_columns(run.ctx, run.updated("y", dtype, shape, exact()),
                 run.integers("ranges", DType::kI32, {s.rows, 2}, 0, s.columns + 1));
  });
}

// The same elements must be dropped; a product and a sum may be fused into one rounding.
OpCase dropout_case(const Size& s, DType dtype, double p, bool residual) {
  const Shape shape{s.rows, s.columns};
  OpCase c = make("dropout", s, dtype, (residual ? 3 : 2) * dtype_size(dtype), [=](OpRun& run) {
    const ConstTensor other = residual ? run.random("residual", dtype, shape) : ConstTensor();
    dropout(run.ctx, run.output("y", dtype, shape, whole(1)), run.random("x", dtype, shape), other,
            run.integers("rows", DType::kI64, {s.rows}, 0, int64_t{1} << 31), p, RandomKey{5, 77});
  });
  c.shape += concat(" p ", p, residual ? " residual" : "");
  return c;
}

// In place, without alignment to four words.
OpCase dropout_in_place(DType dtype) {
  const Shape shape{7, 33};
  return make("dropout", {7, 33}, dtype, 2 * dtype_size(dtype), [=](OpRun& run) {
    const Tensor y = run.updated("y", dtype, shape, whole(1));
    dropout(run.ctx, y, y, {}, run.integers("rows", DType::kI64, {7}, 0, 1000), 0.3,
            RandomKey{6, 78});
  });
}

// Columns of wider rows, aligned to four generator words or not.
OpCase dropout_of_columns(DType dtype, int64_t columns, const DropoutPart& part) {
  const Shape shape{9, columns};
  OpCase c = make("dropout", {9, columns}, dtype, 2 * dtype_size(dtype), [=](OpRun& run) {
    dropout(run.ctx, run.output("y", dtype, shape, whole(1)), run.random("x", dtype, shape), {},
            run.integers("rows", DType::kI64, {9}, 0, 1000), 0.3, RandomKey{6, 79}, part);
  });
  c.shape += concat(" at ", part.first, " of ", part.total);
  return c;
}

}  // namespace

std::vector<OpCase> elementwise_cases() {
  const std::vector<DType> floats = {DType::kF64, DType::kF32, DType::kBF16, DType::kF16};
  std::vector<OpCase> cases;
  for (DType dtype : floats) {
    for (const Size& s : kSizes) {
      cases.push_back(add_case(s, dtype));
      for (const FactorRounding rounding : {FactorRounding::kTensor, FactorRounding::kProduct})
        cases.push_back(scale_case(s, dtype, rounding));
      cases.push_back(fill_case(s, dtype));
      cases.push_back(fill_normal_case(s, dtype));
      cases.push_back(keep_case(s, dtype));
      for (DType to : floats) cases.push_back(cast_case(s, dtype, to));
      cases.push_back(dropout_case(s, dtype, 0.0, false));
      cases.push_back(dropout_case(s, dtype, 0.1, false));
      cases.push_back(dropout_case(s, dtype, 0.5, true));
    }
    cases.push_back(dropout_in_place(dtype));
    cases.push_back(dropout_of_columns(dtype, 32, {.first = 32, .total = 96}));
    cases.push_back(dropout_of_columns(dtype, 32, {.first = 6, .total = 45}));
  }
  return cases;
}

}  // namespace trireme::test
