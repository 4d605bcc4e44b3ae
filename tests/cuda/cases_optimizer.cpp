#include <bit>

#include "engine/ops/optimizer/optimizer_step.h"
#include "tests/cuda/registry.h"

namespace trireme::test {
namespace {

// None, one, not a multiple of a vector, more than the elements of a thread.
const std::vector<int64_t> kSizes = {0, 1, 7, 1003};
constexpr int64_t kLarge = int64_t{1} << 25;

// Four values of eight bytes, so that the address has the alignment of a StepScalars.
ConstTensor scalars(OpRun& run, const StepScalars& s) {
  const ConstTensor t =
      run.values("scalars", DType::kF64, {4},
                 {s.grad_multiplier, s.learning_rate, std::bit_cast<double>(s.count),
                  std::bit_cast<double>(static_cast<int64_t>(s.skip))});
  return {t.raw(), DType::kU8, Shape{kStepScalarsBytes}, run.ctx.device()};
}

// Multiples of 1/16 in [-8, 8). With coefficients of one half every result is exact in float32, so
// that both sides agree in every bit of stochastic rounding.
std::vector<double> sixteenths(int64_t n, int64_t factor) {
  std::vector<double> out;
  for (int64_t i = 0; i < n; ++i) out.push_back(static_cast<double>(i * factor % 256 - 128) / 16.0);
  return out;
}
// Values in [-1/2, 1/2) too fine for a moment in bfloat16, and coarse enough that float32 holds
// half of a square added to one.
std::vector<double> fine(int64_t n, int64_t factor) {
  std::vector<double> out;
  for (int64_t i = 0; i < n; ++i)
    out.push_back(static_cast<double>(i * factor % 511 - 255) / 512.0);
  return out;
}

struct Update {
  int64_t n = 0;
  DType dtype = DType::kF32;
  bool master = false, bf16_state = false;
  std::string variant;  // what distinguishes the case
  StepScalars scalars{.grad_multiplier = 0.5, .learning_rate = 0.5, .count = 3};
  ElementIndex index{};
};

std::string describe(const Update& u) {
  return concat("(", u.n, ")", u.master ? " master" : "", u.bf16_state ? " bf16 state" : "", " ",
                u.variant);
}

struct State {
  Tensor param, master;
  ConstTensor grad;
  DType dtype;  // of m and v
};

State operands(OpRun& run, const Update& u, Close of_param) {
  const DType wide = sum_dtype(u.dtype);
  const std::vector<double> p = sixteenths(u.n, 37);
  return {.param = run.updated_values("param", u.dtype, {u.n}, of_param, p),
          .master = u.master ? run.updated_values("master", wide, {u.n}, of_param, p) : Tensor(),
          .grad = run.values("grad", wide, {u.n}, fine(u.n, 1031)),
          .dtype = u.bf16_state ? DType::kBF16 : wide};
}

OpCase adamw_case(const Update& u, bool decoupled) {
  const auto body = [=](OpRun& run) {
    const State s = operands(run, u, whole(4));
    const Close of_state = decoupled ? exact() : whole(4);
    std::vector<double> squares = sixteenths(u.n, 91);
    for (double& v : squares) v = std::abs(v);
    const Tensor m = run.updated_values("m", s.dtype, {u.n}, of_state, sixteenths(u.n, 53));
    const Tensor v = run.updated_values("v", s.dtype, {u.n}, of_state, squares);
    adamw_step(run.ctx, s.param, s.master, s.grad, m, v, scalars(run, u.scalars),
               {.beta1 = 0.5,
                .beta2 = 0.5,
                .eps = 1e-3,
                .weight_decay = 0.25,
                .lr_multiplier = 0.5,
                .decoupled = decoupled,
                .rounding = {7, 11},
                .index = u.index});
  };
  return {.op = "adamw_step",
          .shape = concat(describe(u), decoupled ? "" : " coupled"),
          .dtype = u.dtype,
          .body = body,
          .bytes = static_cast<double>(
              u.n * (2 * dtype_size(u.dtype) + (u.master ? 8 : 0) + 4 + (u.bf16_state ? 8 : 16))),
          .large = u.n == kLarge};
}

OpCase sgd_case(const Update& u, double momentum, bool nesterov) {
  const auto body = [=](OpRun& run) {
    const State s = operands(run, u, exact());
    const Tensor m = momentum != 0
                         ? run.updated_values("m", s.dtype, {u.n}, exact(), sixteenths(u.n, 53))
                         : Tensor();
    sgd_step(run.ctx, s.param, s.master, s.grad, m, scalars(run, u.scalars),
             {.momentum = momentum,
              .weight_decay = 0.25,
              .nesterov = nesterov,
              .rounding = {7, 11},
              .index = u.index});
  };
  return {.op = "sgd_step",
          .shape = concat(describe(u), " momentum ", momentum, nesterov ? " nesterov" : ""),
          .dtype = u.dtype,
          .body = body,
          .large = u.n == kLarge};
}

// (b1 m + (1 - b1) g) is a multiple of 2^-12: exact, and so is its sign.
OpCase lion_case(const Update& u) {
  const auto body = [=](OpRun& run) {
    const State s = operands(run, u, exact());
    const Tensor m = run.updated_values("m", s.dtype, {u.n}, exact(), sixteenths(u.n, 53));
    lion_step(run.ctx, s.param, s.master, s.grad, m, scalars(run, u.scalars),
              {.beta1 = 0.5,
               .beta2 = 0.75,
               .weight_decay = 0.25,
               .lr_multiplier = 0.5,
               .rounding = {7, 11},
               .index = u.index});
  };
  return {.op = "lion_step",
          .shape = describe(u),
          .dtype = u.dtype,
          .body = body,
          .large = u.n == kLarge};
}

void add_updates(std::vector<OpCase>& cases, Update u) {
  for (bool master : {false, true}) {
    if (master && dtype_size(u.dtype) != 2) continue;
    for (bool bf16_state : {false, true}) {
      if (bf16_state && u.dtype == DType::kF64) continue;
      u.master = master;
      u.bf16_state = bf16_state;
      cases.push_back(adamw_case(u, true));
      cases.push_back(lion_case(u));
      if (u.n == kLarge) continue;
      cases.push_back(adamw_case(u, false));
      cases.push_back(sgd_case(u, 0.5, false));
      cases.push_back(sgd_case(u, 0.5, true));
      if (!bf16_state) cases.push_back(sgd_case(u, 0, false));
    }
  }
}

OpCase squares_case(int64_t n, DType dtype) {
  const auto body = [=](OpRun& run) {
    sum_of_squares(run.ctx, run.updated("out", DType::kF64, {1}, whole(n)),
                   run.random("x", dtype, {n}));
  };
  return {.op = "sum_of_squares",
          .shape = concat("(", n, ")"),
          .dtype = dtype,
          .body = body,
          .bytes = static_cast<double>(n * dtype_size(dtype)),
          .large = n == kLarge};
}

// skip: step of these gradients that is skipped; negative: none.
OpCase non_finite_case(int64_t n, const std::vector<int64_t>& bad, DType dtype, int skip = -1) {
  const auto body = [=](OpRun& run) {
    std::vector<double> values = sixteenths(n, 37);
    for (int64_t at : bad)
      values[static_cast<size_t>(at)] = at % 2 == 0 ? static_cast<double>(NAN) : -INFINITY;
    const ConstTensor x = run.values("x", dtype, {n}, values);
    const Tensor first = run.updated_values("first", DType::kI64, {1}, exact(), {1e9});
    first_non_finite(run.ctx, first, x, 3, skip < 0 ? ConstTensor() : scalars(run, {.skip = skip}));
  };
  return {.op = "first_non_finite",
          .shape = concat("(", n, ") ", bad.size(), " of them from ", bad.empty() ? -1 : bad[0],
                          skip < 0    ? ""
                          : skip == 0 ? ", no skip"
                                      : ", skip"),
          .dtype = dtype,
          .body = body};
}

}  // namespace

std::vector<OpCase> optimizer_cases() {
  std::vector<OpCase> cases;
  for (DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
    for (int64_t n : kSizes) add_updates(cases, {.n = n, .dtype = dtype, .variant = "update 3"});
    add_updates(cases, {.n = kLarge, .dtype = dtype, .variant = "update 3"});
    // Elements that start inside a group of four random words, and rows with gaps.
    add_updates(cases, {.n = 101, .dtype = dtype, .variant = "from 6", .index = {.first = 6}});
    add_updates(cases, {.n = 101,
                        .dtype = dtype,
                        .variant = "rows of 7",
                        .index = {.first = 5, .width = 7, .stride = 19, .offset = 3}});
    add_updates(cases, {.n = 9,
                        .dtype = dtype,
                        .variant = "first",
                        .scalars = {.grad_multiplier = 0.5, .learning_rate = 0.5, .count = 1}});
    add_updates(cases,
                {.n = 9, .dtype = dtype, .variant = "skipped", .scalars = {.count = 2, .skip = 1}});
    for (int64_t n : {0, 1, 7, 32768, 100003}) cases.push_back(squares_case(n, dtype));
    cases.push_back(squares_case(kLarge, dtype));
    cases.push_back(non_finite_case(0, {}, dtype));
    cases.push_back(non_finite_case(70001, {}, dtype));
    cases.push_back(non_finite_case(70001, {70000}, dtype));
    cases.push_back(non_finite_case(70001, {40003, 40004, 65535}, dtype));
    for (const int skip : {0, 1}) cases.push_back(non_finite_case(101, {7}, dtype, skip));
  }
  return cases;
}

}  // namespace trireme::test
