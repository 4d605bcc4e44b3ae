#include "engine/ops/rows/activation.h"
#include "engine/ops/rows/clamped_gate.h"
#include "engine/ops/rows/soft_cap.h"
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

std::vector<OpCase> activation_cases(ActivationFunction f, const Size& s, DType dtype) {
  const Shape shape{s.rows, s.columns};
  return {make(op_names(f).forward, s, dtype, 2,
               [=](OpRun& run) {
                 activation_forward(run.ctx, f, run.output("y", dtype, shape, whole(1)),
                                    run.random("x", dtype, shape, -4.0, 4.0));
               }),
          make(op_names(f).backward, s, dtype, 3, [=](OpRun& run) {  // in place
            const Tensor dx = run.updated("dx", dtype, shape, whole(1));
            activation_backward(run.ctx, f, dx, dx, run.random("x", dtype, shape, -4.0, 4.0));
          })};
}

std::vector<OpCase> gated_cases(ActivationFunction f, const Size& s, DType dtype) {
  const Shape shape{s.rows, s.columns}, twice{s.rows, 2 * s.columns};
  return {make(op_names(f).gated_forward, s, dtype, 3,
               [=](OpRun& run) {
                 gated_forward(run.ctx, f, run.output("y", dtype, shape, whole(1)),
                               run.random("gate_up", dtype, twice, -4.0, 4.0));
               }),
          make(op_names(f).gated_backward, s, dtype, 5, [=](OpRun& run) {
            gated_backward(run.ctx, f, run.output("d_gate_up", dtype, twice, whole(1)),
                           run.random("dy", dtype, shape),
                           run.random("gate_up", dtype, twice, -4.0, 4.0));
          })};
}

std::vector<OpCase> clamped_cases(const Size& s, DType dtype) {
  constexpr ClampedGate kGate{.limit = 2, .slope = 1.702, .up_offset = 1};
  const Shape shape{s.rows, s.columns}, twice{s.rows, 2 * s.columns};
  return {make("clamped_gate_forward", s, dtype, 3,
               [=](OpRun& run) {
                 clamped_gate_forward(run.ctx, kGate, run.output("y", dtype, shape, whole(1)),
                                      run.random("gate_up", dtype, twice, -4.0, 4.0));
               }),
          make("clamped_gate_backward", s, dtype, 5, [=](OpRun& run) {
            clamped_gate_backward(run.ctx, kGate, run.output("d_gate_up", dtype, twice, whole(1)),
                                  run.random("dy", dtype, shape),
                                  run.random("gate_up", dtype, twice, -4.0, 4.0));
          })};
}

std::vector<OpCase> soft_cap_cases(const Size& s, DType dtype) {
  const Shape shape{s.rows, s.columns};
  return {make("soft_cap_forward", s, dtype, 2,
               [=](OpRun& run) {
                 soft_cap_forward(run.ctx, run.output("y", dtype, shape, each(4)),
                                  run.random("x", dtype, shape, -4.0, 4.0), 1.7);
               }),
          make("soft_cap_backward", s, dtype, 3, [=](OpRun& run) {
            soft_cap_backward(run.ctx, run.updated("d", dtype, shape, whole(2)),
                              run.random("y", sum_dtype(dtype), shape, -1.6, 1.6), 1.7);
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
  const auto add = [&](std::vector<OpCase> more) {
    for (OpCase& c : more) cases.push_back(std::move(c));
  };
  for (DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16})
    for (const Size& s : kSizes) {
      for (ActivationFunction f : {ActivationFunction::kGelu, ActivationFunction::kSilu}) {
        add(activation_cases(f, s, dtype));
        add(gated_cases(f, s, dtype));
      }
      add(clamped_cases(s, dtype));
      add(soft_cap_cases(s, dtype));
      add(bias_cases(s, dtype));
    }
  return cases;
}

}  // namespace trireme::test
