#include "engine/ops/norm/dora_magnitude.h"
#include "tests/cuda/registry.h"

namespace trireme::test {
namespace {

struct Weight {
  int64_t out, in, rank;
  bool large = false;
};
// Numbers of rows that are not a multiple of a block's, inputs that are not a multiple of a vector,
// and more inputs than threads.
const std::vector<Weight> kWeights = {{1, 1, 1},    {5, 7, 3},     {6, 264, 2},
                                      {9, 2072, 5}, {33, 515, 16}, {4096, 4096, 16, true}};

// margin: outputs of another weight between a token's and the next token's.
struct Size {
  int64_t tokens, out, margin;
  bool large = false;
};
const std::vector<Size> kSizes = {{0, 8, 0},     {1, 1, 0},     {5, 7, 1},
                                  {70, 264, 16}, {300, 520, 3}, {8192, 4096, 2048, true}};

OpCase squares_case(const Weight& s, DType dtype) {
  return {.op = "adapted_row_squares",
          .shape = concat("(", s.out, ", ", s.in, "), rank ", s.rank),
          .dtype = dtype,
          .body =
              [=](OpRun& run) {
                const DType sums = sum_dtype(dtype);
                adapted_row_squares(
                    run.ctx, run.output("squares", sums, {s.out}, each(s.in * (s.rank + 1))),
                    run.random("w", dtype, {s.out, s.in}), run.random("a", dtype, {s.rank, s.in}),
                    run.random("b", dtype, {s.out, s.rank}), 0.75);
              },
          .flops = 2.0 * static_cast<double>(s.out * s.in * (s.rank + 1)),
          .bytes = static_cast<double>(s.out * s.in * dtype_size(dtype)),
          .large = s.large};
}

OpCase outputs_case(const char* op, const Size& s, DType dtype, double passes) {
  return {.op = op,
          .shape = concat("(", s.tokens, ", ", s.out, ") of ", s.out + s.margin),
          .dtype = dtype,
          .bytes = passes * static_cast<double>(s.tokens * s.out * dtype_size(dtype)),
          .large = s.large};
}

Shape wide(const Size& s) { return {s.tokens, s.out + s.margin}; }

// squares: some rows have norm zero.
ConstTensor squares_of(OpRun& run, const Size& s, DType dtype) {
  std::vector<double> squares;
  for (int64_t c = 0; c < s.out; ++c)
    squares.push_back(c % 5 == 3 ? 0.0 : static_cast<double>(c % 7 + 1) / 4);
  return run.values("squares", sum_dtype(dtype), {s.out}, squares);
}

// how: 0 in place, 1 accumulating, 2 without magnitudes
OpCase scale_case(const Size& s, DType dtype, int how) {
  OpCase c = outputs_case("scale_outputs", s, dtype, how == 1 ? 3 : 2);
  c.shape += how == 0 ? " in place" : how == 1 ? " added" : " copied";
  c.body = [=](OpRun& run) {
    const Tensor y = run.updated("y", dtype, wide(s), whole(2)).slice(1, 0, s.out);
    if (how == 2)
      return scale_outputs(run.ctx, y, run.random("x", dtype, wide(s)).slice(1, 0, s.out), {}, {},
                           0, false);
    const ConstTensor m = run.random("m", dtype, {s.out}, 0.5, 1.5);
    const ConstTensor squares = squares_of(run, s, dtype);
    if (how == 0) return scale_outputs(run.ctx, y, y, m, squares, 0, false);
    scale_outputs(run.ctx, y, run.random("x", dtype, wide(s)).slice(1, s.margin, s.out + s.margin),
                  m, squares, -1, true);
  };
  return c;
}

OpCase backward_case(const Size& s, DType dtype, bool accumulate) {
  OpCase c = outputs_case("magnitude_backward", s, dtype, 2);
  if (accumulate) c.shape += " accumulate";
  c.body = [=](OpRun& run) {
    const DType sums = sum_dtype(dtype);
    const Tensor dm = accumulate ? run.updated("dm", sums, {s.out}, whole(s.tokens + 1))
                                 : run.output("dm", sums, {s.out}, whole(s.tokens + 1));
    magnitude_backward(run.ctx, dm, run.random("dy", dtype, wide(s)).slice(1, 0, s.out),
                       run.random("u", dtype, {s.tokens, s.out}), squares_of(run, s, dtype),
                       accumulate);
  };
  return c;
}

}  // namespace

std::vector<OpCase> dora_magnitude_cases() {
  std::vector<OpCase> cases;
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
    for (const Weight& w : kWeights) cases.push_back(squares_case(w, dtype));
    for (const Size& s : kSizes) {
      for (const int how : {0, 1, 2}) cases.push_back(scale_case(s, dtype, how));
      for (const bool accumulate : {false, true})
        cases.push_back(backward_case(s, dtype, accumulate));
    }
  }
  return cases;
}

}  // namespace trireme::test
