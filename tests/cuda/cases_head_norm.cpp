#include "engine/ops/norm/head_norm.h"
#include "tests/cuda/registry.h"

namespace trireme::test {
namespace {

constexpr double kEps = 1e-6;

// `margin`: elements between a token's heads and the next token's.
struct Size {
  int64_t tokens, heads, width, margin;
  bool large = false;
};
// No token, widths that are not a multiple of a vector and that exceed a warp, more heads than
// blocks of heads.
const std::vector<Size> kSizes = {
    {1, 1, 1, 0},    {0, 2, 8, 0},     {5, 3, 7, 1},     {9, 2, 64, 64},
    {70, 5, 24, 16}, {300, 2, 136, 8}, {2, 1, 300, 300}, {8192, 32, 128, 0, true}};

Tensor heads_of(const Tensor& packed, const Size& s) {
  return packed.slice(1, 0, s.heads * s.width).split_last(s.heads, s.width);
}

ConstTensor heads_of(const ConstTensor& packed, const Size& s) {
  return packed.slice(1, 0, s.heads * s.width).split_last(s.heads, s.width);
}

Shape packed(const Size& s) { return {s.tokens, s.heads * s.width + s.margin}; }

OpCase named(const char* op, const Size& s, DType dtype, double passes) {
  return {.op = op,
          .shape = concat("(", s.tokens, ", ", s.heads, ", ", s.width, ")"),
          .dtype = dtype,
          .bytes = passes * static_cast<double>(s.tokens * s.heads * s.width * dtype_size(dtype)),
          .large = s.large};
}

// unit: added to the weights.
OpCase forward_case(const Size& s, DType dtype, double unit) {
  OpCase c = named("head_norm_forward", s, dtype, 2);
  if (unit != 0) c.shape += " 1 + w";
  c.body = [=](OpRun& run) {
    const Tensor y = run.updated("y", dtype, packed(s), row(s.width));
    const Tensor rstd = run.output("rstd", sum_dtype(dtype), {s.tokens, s.heads}, each(s.width));
    const ConstTensor x = run.random("x", dtype, packed(s), -1.0, 2.0);
    const ConstTensor w = run.random("w", dtype, {s.width}, 0.5, 1.5);
    head_norm_forward(run.ctx, heads_of(y, s), rstd, heads_of(x, s), w, kEps, unit);
  };
  return c;
}

OpCase backward_case(const Size& s, DType dtype, bool accumulate, double unit) {
  OpCase c = named("head_norm_backward", s, dtype, 3);
  if (accumulate) c.shape += " accumulate, in place";
  if (unit != 0) c.shape += " 1 + w";
  c.body = [=](OpRun& run) {
    const DType sums = sum_dtype(dtype);
    const int64_t vectors = s.tokens * s.heads;
    const Tensor dx = run.updated("dx", dtype, packed(s), whole(s.width));
    const Tensor dw = accumulate ? run.updated("dw", sums, {s.width}, whole(vectors))
                                 : run.output("dw", sums, {s.width}, whole(vectors));
    const ConstTensor dy = accumulate ? ConstTensor(dx) : run.random("dy", dtype, packed(s));
    const ConstTensor x = run.random("x", dtype, packed(s));
    const ConstTensor w = run.random("w", dtype, {s.width}, 0.5, 1.5);
    const ConstTensor rstd = run.random("rstd", sums, {s.tokens, s.heads}, 0.5, 2.0);
    head_norm_backward(run.ctx, heads_of(dx, s), dw, heads_of(dy, s), heads_of(x, s), w, rstd,
                       accumulate, unit);
  };
  return c;
}

}  // namespace

std::vector<OpCase> head_norm_cases() {
  std::vector<OpCase> cases;
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16})
    for (const Size& s : kSizes) {
      for (const double unit : {0.0, 1.0}) {
        cases.push_back(forward_case(s, dtype, unit));
        for (const bool accumulate : {false, true})
          cases.push_back(backward_case(s, dtype, accumulate, unit));
      }
    }
  return cases;
}

}  // namespace trireme::test
