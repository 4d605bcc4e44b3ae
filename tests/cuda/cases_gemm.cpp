#include "engine/ops/gemm/gemm.h"
#include "engine/ops/moe/grouped_bias.h"
#include "engine/ops/moe/grouped_gemm.h"
#include "tests/cuda/registry.h"

namespace trireme::test {
namespace {

struct Product {
  int64_t m, n, k;
  bool large = false;
};
// One element, no rows, no terms, sizes that are multiples of a vector and that are not, many
// columns and terms that are not.
const std::vector<Product> kProducts = {
    {1, 1, 1},   {0, 5, 3},    {3, 5, 0},    {5, 0, 3},       {1, 33, 17},
    {7, 3, 129}, {33, 65, 20}, {64, 48, 32}, {3, 1037, 1101}, {8192, 8192, 8192, true}};

const char* letter(Transpose t) { return t == Transpose::kYes ? "T" : "N"; }

struct Form {
  Transpose a = Transpose::kNo, b = Transpose::kNo;
  bool wide_output = false;  // float32 output of 16-bit operands
  int64_t more_columns = 0;  // columns of the larger matrices that A, B and C are slices of
  GemmArgs args = {};        // without the bias
  bool bias = false;
};

std::string describe(const Product& p, const Form& f) {
  return concat("(", p.m, ", ", p.k, ") x (", p.k, ", ", p.n, ") ", letter(f.a), letter(f.b),
                f.wide_output ? " to float32" : "", f.more_columns > 0 ? " of wider" : "",
                f.args.accumulate ? " added" : "", f.args.alpha != 1.0f ? " scaled" : "",
                f.bias ? " with bias" : "");
}

// The first columns of a matrix that has `more` further columns.
template <class T>
T narrowed(const T& t, int64_t more) {
  return more == 0 ? t : t.slice(1, 0, t.size(1) - more);
}

OpCase gemm_case(const Product& p, DType dtype, const Form& f) {
  const auto body = [=](OpRun& run) {
    const auto operand = [&](const char* name, int64_t rows, int64_t columns, Transpose t) {
      const bool stored = t == Transpose::kNo;
      const Shape shape{stored ? rows : columns, (stored ? columns : rows) + f.more_columns};
      return narrowed(run.random(name, dtype, shape), f.more_columns);
    };
    const ConstTensor a = operand("a", p.m, p.k, f.a), b = operand("b", p.k, p.n, f.b);
    const DType out = f.wide_output ? DType::kF32 : dtype;
    const Shape shape{p.m, p.n + f.more_columns};
    const Close close = whole(p.k + 2);
    // Outside the slice nothing may change, so that it is compared with the initial content.
    const bool keeps = f.args.accumulate || f.more_columns > 0;
    const Tensor c =
        keeps ? run.updated("c", out, shape, close) : run.output("c", out, shape, close);
    GemmArgs args = f.args;
    if (f.bias) args.bias = run.random("bias", out, {p.n});
    gemm(run.ctx, narrowed(c, f.more_columns), a, f.a, b, f.b, args);
  };
  return {.op = "gemm",
          .shape = describe(p, f),
          .dtype = dtype,
          .body = body,
          .flops = 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n * p.k),
          .large = p.large};
}

// Forms of one product: every transposition of the operands, each with every option.
std::vector<Form> forms(const Product& p, DType dtype) {
  constexpr Transpose kNo = Transpose::kNo, kYes = Transpose::kYes;
  const bool narrow = dtype == DType::kBF16 || dtype == DType::kF16;
  std::vector<Form> all = {
      {.a = kNo, .b = kYes},
      {.a = kYes, .b = kNo, .wide_output = narrow, .args = {.accumulate = true}},
      {.a = kNo, .b = kNo, .more_columns = 3, .bias = true}};
  if (p.large) return {{.a = kNo, .b = kYes}, {.a = kNo, .b = kNo}, {.a = kYes, .b = kNo}};
  if (p.m != 33) return all;
  all.clear();
  for (Transpose a : {kNo, kYes})
    for (Transpose b : {kNo, kYes}) {
      all.push_back({.a = a, .b = b});
      all.push_back({.a = a, .b = b, .more_columns = 3, .args = {.alpha = 0.75f}, .bias = true});
      all.push_back({.a = a, .b = b, .more_columns = 8, .args = {.accumulate = true}});
      if (!narrow) continue;
      all.push_back({.a = a, .b = b, .wide_output = true, .args = {.accumulate = true}});
      all.push_back({.a = a, .b = b, .wide_output = true, .bias = true});
    }
  return all;
}

// Few rows of 16-bit values, computed by Trireme's own kernel: no rows, one, up to its maximum;
// outputs and terms that fill no tile; and the forms that it supports.
void add_skinny_cases(std::vector<OpCase>& cases, DType dtype) {
  constexpr Transpose kNo = Transpose::kNo, kYes = Transpose::kYes;
  for (const Product& p :
       std::vector<Product>{{1, 33, 8}, {3, 16, 264}, {5, 129, 520}, {6, 40, 2048}, {8, 50, 1032}})
    for (const Form& f : std::vector<Form>{
             {.a = kNo, .b = kYes},
             {.a = kNo, .b = kYes, .wide_output = true, .args = {.accumulate = true}},
             {.a = kNo, .b = kYes, .more_columns = 8, .args = {.alpha = 0.75f}, .bias = true},
             {.a = kNo, .b = kYes, .wide_output = true, .bias = true}})
      cases.push_back(gemm_case(p, dtype, f));
}

void add_linear_cases(std::vector<OpCase>& cases, DType dtype) {
  constexpr int64_t kT = 9, kIn = 40, kOut = 24;
  const Close forward = whole(kIn + 2), to_input = whole(kOut + 2), to_weight = whole(kT + 2);
  const auto add = [&](const char* op, std::string shape, std::function<void(OpRun&)> body) {
    cases.push_back({.op = op, .shape = std::move(shape), .dtype = dtype, .body = std::move(body)});
  };
  add("linear_forward", "with bias", [=](OpRun& run) {
    const ConstTensor x = run.random("x", dtype, {kT, kIn}),
                      w = run.random("w", dtype, {kOut, kIn});
    linear_forward(run.ctx, run.output("y", dtype, {kT, kOut}, forward), x, w,
                   run.random("bias", dtype, {kOut}));
  });
  for (const char* op : {"pack_weight", "linear_forward_packed"})
    add(op, "without bias", [=](OpRun& run) {
      const ConstTensor x = run.random("x", dtype, {kT, kIn});
      const PackedWeight w = pack_weight(run.ctx, run.random("w", dtype, {kOut, kIn}));
      linear_forward_packed(run.ctx, run.output("y", dtype, {kT, kOut}, forward), x, w, {});
    });
  for (const bool added : {false, true}) {
    add("linear_backward_input", added ? "added" : "set", [=](OpRun& run) {
      const ConstTensor dy = run.random("dy", dtype, {kT, kOut});
      const ConstTensor w = run.random("w", dtype, {kOut, kIn});
      const Tensor dx = added ? run.updated("dx", dtype, {kT, kIn}, to_input)
                              : run.output("dx", dtype, {kT, kIn}, to_input);
      linear_backward_input(run.ctx, dx, dy, w, added);
    });
    add("linear_backward_weight", added ? "added" : "set", [=](OpRun& run) {
      const ConstTensor dy = run.random("dy", dtype, {kT, kOut}),
                        x = run.random("x", dtype, {kT, kIn});
      const DType sums = sum_dtype(dtype);
      const Tensor dw = added ? run.updated("dw", sums, {kOut, kIn}, to_weight)
                              : run.output("dw", sums, {kOut, kIn}, to_weight);
      linear_backward_weight(run.ctx, dw, dy, x, added);
    });
  }
}

// Four experts: with some rows, none, one, and more than a CPU tile; two rows belong to no expert.
void add_grouped_cases(std::vector<OpCase>& cases, DType dtype) {
  constexpr int64_t kRows = 28, kIn = 20, kOut = 12;
  static const std::vector<int64_t> kOffsets = {0, 7, 7, 8, 26};
  const auto weights = [=](OpRun& run) {
    std::vector<Tensor> w;
    const ConstTensor all = run.random("w", dtype, {4 * kOut, kIn});
    for (int64_t e = 0; e < 4; ++e) {
      const ConstTensor part = all.slice(0, e * kOut, (e + 1) * kOut);
      w.emplace_back(const_cast<void*>(part.raw()), dtype, part.shape(), part.device());
    }
    return w;
  };
  const auto offsets = [](const OpRun& run) {
    return run.planning() ? std::span<const int64_t>() : std::span<const int64_t>(kOffsets);
  };
  const auto add = [&](const char* op, std::string shape, std::function<void(OpRun&)> body) {
    cases.push_back({.op = op, .shape = std::move(shape), .dtype = dtype, .body = std::move(body)});
  };
  add("grouped_linear_forward", "4 experts", [=](OpRun& run) {
    const Tensor y = run.updated("y", dtype, {kRows, kOut}, whole(kIn + 2));
    grouped_linear_forward(run.ctx, y, run.random("x", dtype, {kRows, kIn}), weights(run),
                           offsets(run));
  });
  add("grouped_linear_backward_input", "4 experts", [=](OpRun& run) {
    const Tensor dx = run.updated("dx", dtype, {kRows, kIn}, whole(kOut + 2));
    grouped_linear_backward_input(run.ctx, dx, run.random("dy", dtype, {kRows, kOut}), weights(run),
                                  offsets(run));
  });
  for (const bool added : {false, true})
    add("grouped_linear_backward_weight", added ? "4 experts, added" : "4 experts, set",
        [=](OpRun& run) {
          const DType sums = sum_dtype(dtype);
          const Shape shape{4 * kOut, kIn};
          const Tensor dw = added ? run.updated("dw", sums, shape, whole(kRows))
                                  : run.output("dw", sums, shape, whole(kRows));
          std::vector<GroupedGradient> gradients;
          for (int64_t e = 0; e < 4; ++e)
            gradients.push_back({dw.slice(0, e * kOut, (e + 1) * kOut), added});
          grouped_linear_backward_weight(run.ctx, gradients, run.random("dy", dtype, {kRows, kOut}),
                                         run.random("x", dtype, {kRows, kIn}), offsets(run));
        });
  add("grouped_bias_forward", "4 experts", [=](OpRun& run) {
    const Tensor y = run.updated("y", dtype, {kRows, kOut}, exact());
    const ConstTensor all = run.random("biases", dtype, {4, kOut});
    std::vector<Tensor> biases;
    for (int64_t e = 0; e < 4; ++e) {
      const ConstTensor one = all.slice(0, e, e + 1);
      biases.emplace_back(const_cast<void*>(one.raw()), dtype, Shape{kOut}, one.device());
    }
    grouped_bias_forward(run.ctx, y, biases, offsets(run));
  });
  for (const bool added : {false, true})
    add("grouped_bias_backward", added ? "4 experts, added" : "4 experts, set", [=](OpRun& run) {
      const DType sums = sum_dtype(dtype);
      const Tensor db = added ? run.updated("db", sums, {4 * kOut}, whole(kRows))
                              : run.output("db", sums, {4 * kOut}, whole(kRows));
      std::vector<GroupedBiasGradient> gradients;
      for (int64_t e = 0; e < 4; ++e)
        gradients.push_back({db.slice(0, e * kOut, (e + 1) * kOut), added});
      grouped_bias_backward(run.ctx, gradients, run.random("dy", dtype, {kRows, kOut}),
                            offsets(run));
    });
}

}  // namespace

std::vector<OpCase> gemm_cases() {
  std::vector<OpCase> cases;
  for (DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
    for (const Product& p : kProducts)
      for (const Form& f : forms(p, dtype)) cases.push_back(gemm_case(p, dtype, f));
    if (dtype_size(dtype) == 2) add_skinny_cases(cases, dtype);
    add_linear_cases(cases, dtype);
    add_grouped_cases(cases, dtype);
  }
  return cases;
}

}  // namespace trireme::test
