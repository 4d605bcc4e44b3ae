#include "engine/ops/norm/divided_norm.h"
#include "tests/cuda/registry.h"

namespace trireme::test {
namespace {

// `margin`: elements between a row and the next one. `others`: columns on other ranks.
struct Size {
  int64_t rows, columns, margin, others;
  bool large = false;
};
// No row, widths that are not a multiple of a vector and that exceed a thread block.
const std::vector<Size> kSizes = {
    {1, 1, 0, 0},      {0, 16, 0, 16},   {5, 21, 1, 7},      {70, 120, 16, 0},
    {9, 128, 64, 256}, {300, 272, 8, 0}, {2, 3000, 8, 3000}, {8192, 4096, 1024, 0, true}};

Tensor rows_of(const Tensor& packed, const Size& s) { return packed.slice(1, 0, s.columns); }
ConstTensor rows_of(const ConstTensor& packed, const Size& s) {
  return packed.slice(1, 0, s.columns);
}
Shape packed(const Size& s) { return {s.rows, s.columns + s.margin}; }

OpCase named(const char* op, const Size& s, DType dtype, double passes) {
  return {.op = op,
          .shape = concat("(", s.rows, ", ", s.columns, ") of ", s.columns + s.others),
          .dtype = dtype,
          .bytes = passes * static_cast<double>(s.rows * s.columns * dtype_size(dtype)),
          .large = s.large};
}

OpCase sums_case(const Size& s, DType dtype) {
  OpCase c = named("square_sums", s, dtype, 1);
  c.body = [=](OpRun& run) {
    const Tensor sums = run.output("sums", sum_dtype(dtype), {s.rows}, each(s.columns));
    square_sums(run.ctx, sums, rows_of(run.random("x", dtype, packed(s)), s));
  };
  return c;
}

OpCase forward_case(const Size& s, DType dtype) {
  OpCase c = named("divided_norm_forward", s, dtype, 2);
  c.body = [=](OpRun& run) {
    const DType statistics = sum_dtype(dtype);
    const Tensor y = run.updated("y", dtype, packed(s), each());
    const Tensor rstd = run.output("rstd", statistics, {s.rows}, each());
    const ConstTensor x = run.random("x", dtype, packed(s), -1.0, 2.0);
    const ConstTensor w = run.random("w", dtype, {s.columns}, 0.5, 1.5);
    const ConstTensor sums = run.random("sums", statistics, {s.rows}, 0.5, 2.0);
    divided_norm_forward(run.ctx, rows_of(y, s), rstd, rows_of(x, s), w, sums, s.columns + s.others,
                         1e-6);
  };
  return c;
}

OpCase weights_case(const Size& s, DType dtype, bool accumulate) {
  OpCase c = named("divided_norm_backward_weight", s, dtype, 2);
  if (accumulate) c.shape += " accumulate";
  c.body = [=](OpRun& run) {
    const DType sums = sum_dtype(dtype);
    const Tensor dots = run.output("dots", sums, {s.rows}, whole(s.columns));
    const Tensor dw = accumulate ? run.updated("dw", sums, {s.columns}, whole(s.rows))
                                 : run.output("dw", sums, {s.columns}, whole(s.rows));
    const ConstTensor dy = run.random("dy", dtype, packed(s));
    const ConstTensor x = run.random("x", dtype, packed(s));
    const ConstTensor w = run.random("w", dtype, {s.columns}, 0.5, 1.5);
    const ConstTensor rstd = run.random("rstd", sums, {s.rows}, 0.5, 2.0);
    divided_norm_backward_weight(run.ctx, dots, dw, rows_of(dy, s), rows_of(x, s), w, rstd,
                                 accumulate);
  };
  return c;
}

OpCase backward_case(const Size& s, DType dtype, bool in_place) {
  OpCase c = named("divided_norm_backward_input", s, dtype, 3);
  if (in_place) c.shape += " in place";
  c.body = [=](OpRun& run) {
    const DType sums = sum_dtype(dtype);
    const Tensor dx = run.updated("dx", dtype, packed(s), whole(2));
    const ConstTensor dy = in_place ? ConstTensor(dx) : run.random("dy", dtype, packed(s));
    const ConstTensor x = run.random("x", dtype, packed(s));
    const ConstTensor w = run.random("w", dtype, {s.columns}, 0.5, 1.5);
    const ConstTensor rstd = run.random("rstd", sums, {s.rows}, 0.5, 2.0);
    const ConstTensor dots = run.random("dots", sums, {s.rows}, -2.0, 2.0);
    divided_norm_backward_input(run.ctx, rows_of(dx, s), rows_of(dy, s), rows_of(x, s), w, rstd,
                                dots, s.columns + s.others);
  };
  return c;
}

}  // namespace

std::vector<OpCase> divided_norm_cases() {
  std::vector<OpCase> cases;
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16})
    for (const Size& s : kSizes) {
      cases.push_back(sums_case(s, dtype));
      cases.push_back(forward_case(s, dtype));
      for (const bool other : {false, true}) {
        cases.push_back(weights_case(s, dtype, other));
        cases.push_back(backward_case(s, dtype, other));
      }
    }
  return cases;
}

}  // namespace trireme::test
