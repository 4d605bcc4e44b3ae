#include "engine/ops/activation.h"
#include "tests/cuda/registry.h"

namespace trireme::test {
namespace {

struct Size {
  int64_t rows, columns;
  bool large = false;
};
const std::vector<Size> kSizes = {{0, 8}, {1, 1}, {3, 7}, {5, 264}, {280, 24}, {8192, 8192, true}};

// Gradients multiply several functions of x, each of magnitude about one: errors are relative to
// the largest.
OpCase make(const char* op, const Size& s, DType dtype, int moved,
            std::function<void(OpRun&)> body) {
  return {.op = op,
          .shape = concat("(", s.rows, ", ", s.columns, ")"),
          .dtype = dtype,
          .body = std::move(body),
          .bytes = static_cast<double>(moved * s.rows * s.columns * dtype_size(dtype)),
          .large = s.large};
}

std::vector<OpCase> gelu_cases(const Size& s, DType dtype) {
  const Shape shape{s.rows, s.columns};
  return {make("gelu_forward", s, dtype, 2,
               [=](OpRun& run) {
                 gelu_forward(run.ctx, run.output("y", dtype, shape, whole(1)),
                              run.random("x", dtype, shape, -4.0, 4.0));
               }),
          make("gelu_backward", s, dtype, 3, [=](OpRun& run) {  // in place
            const Tensor dx = run.updated("dx", dtype, shape, whole(1));
            gelu_backward(run.ctx, dx, dx, run.random("x", dtype, shape, -4.0, 4.0));
          })};
}

std::vector<OpCase> silu_cases(const Size& s, DType dtype) {
  const Shape shape{s.rows, s.columns}, twice{s.rows, 2 * s.columns};
  return {make("silu_gated_forward", s, dtype, 3,
               [=](OpRun& run) {
                 silu_gated_forward(run.ctx, run.output("y", dtype, shape, whole(1)),
                                    run.random("gate_up", dtype, twice, -4.0, 4.0));
               }),
          make("silu_gated_backward", s, dtype, 5, [=](OpRun& run) {
            silu_gated_backward(run.ctx, run.output("d_gate_up", dtype, twice, whole(1)),
                                run.random("dy", dtype, shape),
                                run.random("gate_up", dtype, twice, -4.0, 4.0));
          })};
}

std::vector<OpCase> geglu_cases(const Size& s, DType dtype) {
  const Shape shape{s.rows, s.columns}, twice{s.rows, 2 * s.columns};
  return {make("gelu_gated_forward", s, dtype, 3,
               [=](OpRun& run) {
                 gelu_gated_forward(run.ctx, run.output("y", dtype, shape, whole(1)),
                                    run.random("gate_up", dtype, twice, -4.0, 4.0));
               }),
          make("gelu_gated_backward", s, dtype, 5, [=](OpRun& run) {
            gelu_gated_backward(run.ctx, run.output("d_gate_up", dtype, twice, whole(1)),
                                run.random("dy", dtype, shape),
                                run.random("gate_up", dtype, twice, -4.0, 4.0));
          })};
}

std::vector<OpCase> bias_cases(const Size& s, DType dtype) {
  const Shape shape{s.rows, s.columns}, columns{s.columns};
  const auto backward = [=](OpRun& run, bool accumulate) {
    const DType sums = sum_dtype(dtype);
    const Tensor db = accumulate ? run.updated("db", sums, columns, whole(s.rows))
                                 : run.output("db", sums, columns, whole(s.rows));
    bias_backward(run.ctx, db, run.random("dy", dtype, shape), accumulate);
  };
  std::vector<OpCase> cases = {
      make("add_bias", s, dtype, 2,
           [=](OpRun& run) {
             add_bias(run.ctx, run.updated("y", dtype, shape, exact()),
                      run.random("bias", dtype, columns));
           }),
      make("bias_backward", s, dtype, 1, [=](OpRun& run) { backward(run, false); }),
      make("bias_backward", s, dtype, 1, [=](OpRun& run) { backward(run, true); })};
  cases.back().shape += " accumulate";
  return cases;
}

}  // namespace

std::vector<OpCase> activation_cases() {
  std::vector<OpCase> cases;
  for (DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16})
    for (const Size& s : kSizes)
      for (auto family : {gelu_cases, silu_cases, geglu_cases, bias_cases})
        for (OpCase& c : family(s, dtype)) cases.push_back(std::move(c));
  return cases;
}

}  // namespace trireme::test
