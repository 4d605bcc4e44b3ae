#include "engine/ops/norm/norm.h"
#include "tests/cuda/registry.h"

namespace trireme::test {
namespace {

constexpr double kEps = 1e-5;

struct Size {
  int64_t rows, columns;
  bool large = false;
};
// One row, none, columns that are not a multiple of a vector, and more rows than row blocks.
const std::vector<Size> kSizes = {{1, 1},    {0, 8},   {1, 7},    {3, 33},
                                  {5, 1000}, {4, 264}, {280, 24}, {8192, 4096, true}};

enum class Kind { kRms, kUnitRms, kLayer };  // kUnitRms: weights are 1 + w
constexpr double unit_of(Kind kind) { return kind == Kind::kUnitRms ? 1 : 0; }

std::string describe(const Size& s, Kind kind, bool residual) {
  return concat("(", s.rows, ", ", s.columns, ")", kind == Kind::kUnitRms ? " 1 + w" : "",
                residual ? " residual" : "");
}

// y has magnitude one, whatever the sums are.
OpCase forward_case(const Size& s, DType dtype, Kind kind, bool residual) {
  const bool centered = kind == Kind::kLayer;
  const auto body = [=](OpRun& run) {
    const Shape wide{s.rows, s.columns};
    const DType sums = sum_dtype(dtype);
    const Tensor y = run.output("y", dtype, wide, row(s.columns));
    const Tensor rstd = run.output("rstd", sums, {s.rows}, each(s.columns));
    const Tensor h = residual ? run.output("h", dtype, wide, each()) : Tensor();
    const ConstTensor x = run.random("x", dtype, wide, -1.0, 2.0);
    const ConstTensor r = residual ? run.random("residual", dtype, wide) : ConstTensor();
    const ConstTensor w = run.random("w", dtype, {s.columns}, 0.5, 1.5);
    if (!centered) return rmsnorm_forward(run.ctx, y, rstd, h, x, r, w, kEps, unit_of(kind));
    const Tensor mean = run.output("mean", sums, {s.rows}, whole(s.columns));
    const ConstTensor b = run.random("b", dtype, {s.columns});
    layernorm_forward(run.ctx, y, mean, rstd, h, x, r, w, b, kEps);
  };
  const double moved = static_cast<double>(s.rows * s.columns * dtype_size(dtype));
  return {.op = centered ? "layernorm_forward" : "rmsnorm_forward",
          .shape = describe(s, kind, residual),
          .dtype = dtype,
          .body = body,
          .bytes = moved * (residual ? 4 : 2),
          .large = s.large};
}

OpCase backward_case(const Size& s, DType dtype, Kind kind, bool residual) {
  const bool centered = kind == Kind::kLayer;
  const auto body = [=](OpRun& run) {
    const Shape wide{s.rows, s.columns};
    const DType sums = sum_dtype(dtype);
    // Accumulates where there is a second gradient.
    const auto gradient = [&](const char* name) {
      return residual ? run.updated(name, sums, {s.columns}, whole(s.rows))
                      : run.output(name, sums, {s.columns}, whole(s.rows));
    };
    const Tensor dx = run.output("dx", dtype, wide, whole(s.columns)), dw = gradient("dw");
    const ConstTensor dy = run.random("dy", dtype, wide), h = run.random("h", dtype, wide);
    const ConstTensor other = residual ? run.random("dh_in", dtype, wide) : ConstTensor();
    const ConstTensor w = run.random("w", dtype, {s.columns}, 0.5, 1.5);
    const ConstTensor rstd = run.random("rstd", sums, {s.rows}, 0.5, 2.0);
    if (!centered)
      return rmsnorm_backward(run.ctx, dx, dw, dy, other, h, w, rstd, residual, unit_of(kind));
    const Tensor db = gradient("db");
    const ConstTensor mean = run.random("mean", sums, {s.rows});
    layernorm_backward(run.ctx, dx, dw, db, dy, other, h, w, mean, rstd, residual);
  };
  const double moved = static_cast<double>(s.rows * s.columns * dtype_size(dtype));
  return {.op = centered ? "layernorm_backward" : "rmsnorm_backward",
          .shape = describe(s, kind, residual),
          .dtype = dtype,
          .body = body,
          .bytes = moved * (residual ? 4 : 3),
          .large = s.large};
}

}  // namespace

std::vector<OpCase> norm_cases() {
  std::vector<OpCase> cases;
  for (DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16})
    for (const Size& s : kSizes)
      for (Kind kind : {Kind::kRms, Kind::kUnitRms, Kind::kLayer})
        for (bool residual : {false, true}) {
          cases.push_back(forward_case(s, dtype, kind, residual));
          cases.push_back(backward_case(s, dtype, kind, residual));
        }
  return cases;
}

}  // namespace trireme::test
