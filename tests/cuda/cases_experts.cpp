#include <numeric>

#include "engine/ops/moe/expert_rows.h"
#include "tests/cuda/registry.h"

namespace trireme::test {
namespace {

struct Size {
  int64_t tokens, k, experts, columns;
  bool large = false;
};
// No pairs, one, and more than a warp handles.
const std::vector<Size> kSizes = {{0, 2, 3, 8},     {1, 1, 1, 1},    {5, 2, 3, 7},
                                  {37, 4, 40, 264}, {900, 3, 7, 24}, {8192, 8, 128, 2048, true}};

std::string describe(const Size& s) {
  return concat(s.tokens, " tokens k ", s.k, " experts ", s.experts, " columns ", s.columns);
}

// Choices as the router makes them: different experts for each token; about every fifth token is
// padding.
std::vector<double> choices(const Size& s) {
  std::vector<double> out;
  for (int64_t t = 0; t < s.tokens; ++t) {
    const auto word = static_cast<int64_t>(philox_word({3, 1}, static_cast<uint64_t>(t)));
    for (int64_t j = 0; j < s.k; ++j)
      out.push_back(word % 5 == 4 ? -1.0 : static_cast<double>((word / 5 + j) % s.experts));
  }
  return out;
}

// Positions in another order than the pairs, each at most once; every fifth is -1.
std::vector<double> scattered_places(int64_t pairs) {
  std::vector<double> out;
  int64_t step = pairs * 5 / 8 + 1;
  while (std::gcd(step, pairs) > 1) ++step;
  for (int64_t p = 0; p < pairs; ++p)
    out.push_back(p % 5 == 2 ? -1.0 : static_cast<double>(p * step % pairs));
  return out;
}

OpCase order_case(const Size& s) {
  const auto body = [=](OpRun& run) {
    const int64_t n = s.tokens * s.k;
    order_by_expert(run.ctx, run.output("pairs", DType::kI32, {n}, exact()),
                    run.output("places", DType::kI32, {s.tokens, s.k}, exact()),
                    run.output("counts", DType::kI64, {s.experts}, exact()),
                    run.values("experts", DType::kI32, {s.tokens, s.k}, choices(s)));
  };
  return {.op = "order_by_expert",
          .shape = describe(s),
          .dtype = DType::kI32,
          .body = body,
          .large = s.large};
}

// The rank has the last part of the tokens; row numbers are unordered, some negative.
OpCase drop_case(const Size& s, int64_t first, int64_t capacity) {
  const auto body = [=](OpRun& run) {
    const std::vector<double> all = choices(s);
    const std::vector<double> own(all.begin() + first * s.k, all.end());
    std::vector<double> rows;
    for (int64_t t = 0; t < s.tokens; ++t)
      rows.push_back(static_cast<double>((t * 7919 % 1009 - 100) * 4096 + t));
    drop_over_capacity(
        run.ctx, run.updated_values("own", DType::kI32, {s.tokens - first, s.k}, exact(), own),
        run.output("dropped", DType::kI64, {1}, exact()),
        run.values("experts", DType::kI32, {s.tokens, s.k}, all),
        run.values("rows", DType::kI64, {s.tokens}, rows), first, s.experts, capacity);
  };
  return {.op = "drop_over_capacity",
          .shape = concat(describe(s), " from ", first, " capacity ", capacity),
          .dtype = DType::kI32,
          .body = body,
          .large = s.large};
}

OpCase gather_case(const Size& s, DType dtype) {
  const auto body = [=](OpRun& run) {
    const int64_t n = s.tokens * s.k;
    gather_rows(run.ctx, run.output("out", dtype, {n, s.columns}, exact()),
                run.random("x", dtype, {s.tokens, s.columns}),
                run.integers("pairs", DType::kI32, {n}, 0, n), s.k);
  };
  return {.op = "gather_rows",
          .shape = describe(s),
          .dtype = dtype,
          .body = body,
          .bytes = static_cast<double>(2 * s.tokens * s.k * s.columns * dtype_size(dtype)),
          .large = s.large};
}

OpCase combine_case(const Size& s, DType dtype, bool weighted) {
  const auto body = [=](OpRun& run) {
    const int64_t n = s.tokens * s.k;
    combine_rows(
        run.ctx, run.output("y", dtype, {s.tokens, s.columns}, whole(s.k)),
        run.random("rows", dtype, {n, s.columns}),
        run.values("places", DType::kI32, {s.tokens, s.k}, scattered_places(n)),
        weighted ? run.random("weights", sum_dtype(dtype), {s.tokens, s.k}) : ConstTensor());
  };
  return {.op = "combine_rows",
          .shape = concat(describe(s), weighted ? " weighted" : ""),
          .dtype = dtype,
          .body = body,
          .bytes = static_cast<double>((s.k + 1) * s.tokens * s.columns * dtype_size(dtype)),
          .large = s.large};
}

OpCase combine_backward_case(const Size& s, DType dtype, bool in_place) {
  const auto body = [=](OpRun& run) {
    const int64_t n = s.tokens * s.k;
    const Tensor d_rows = run.updated("d_rows", dtype, {n, s.columns}, each());
    combine_rows_backward(
        run.ctx, d_rows,
        run.output("d_weights", sum_dtype(dtype), {s.tokens, s.k}, whole(s.columns)),
        run.random("dy", dtype, {s.tokens, s.columns}),
        in_place ? ConstTensor(d_rows) : run.random("rows", dtype, {n, s.columns}),
        run.values("places", DType::kI32, {s.tokens, s.k}, scattered_places(n)),
        run.random("weights", sum_dtype(dtype), {s.tokens, s.k}));
  };
  return {.op = "combine_rows_backward",
          .shape = concat(describe(s), in_place ? " in place" : ""),
          .dtype = dtype,
          .body = body,
          .bytes = static_cast<double>((2 * s.k + 1) * s.tokens * s.columns * dtype_size(dtype)),
          .large = s.large};
}

OpCase scale_case(const Size& s, DType dtype, bool accumulate) {
  const auto body = [=](OpRun& run) {
    const Shape shape{s.tokens, s.columns};
    scale_rows(run.ctx,
               accumulate ? run.updated("y", dtype, shape, whole(1))
                          : run.output("y", dtype, shape, each()),
               run.random("x", dtype, shape), run.random("gate", sum_dtype(dtype), {s.tokens}),
               accumulate);
  };
  return {.op = "scale_rows",
          .shape = concat(describe(s), accumulate ? " accumulate" : ""),
          .dtype = dtype,
          .body = body,
          .large = s.large};
}

OpCase dot_case(const Size& s, DType dtype) {
  const auto body = [=](OpRun& run) {
    const Shape shape{s.tokens, s.columns};
    dot_rows(run.ctx, run.output("out", sum_dtype(dtype), {s.tokens}, whole(s.columns)),
             run.random("a", dtype, shape), run.random("b", dtype, shape));
  };
  return {.op = "dot_rows", .shape = describe(s), .dtype = dtype, .body = body, .large = s.large};
}

}  // namespace

std::vector<OpCase> expert_cases() {
  std::vector<OpCase> cases;
  for (const Size& s : kSizes) {
    cases.push_back(order_case(s));
    for (int64_t capacity : {0, 1, 3}) cases.push_back(drop_case(s, s.tokens / 3, capacity));
    for (DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
      cases.push_back(gather_case(s, dtype));
      cases.push_back(dot_case(s, dtype));
      for (bool flag : {false, true}) {
        cases.push_back(combine_case(s, dtype, flag));
        cases.push_back(combine_backward_case(s, dtype, flag));
        cases.push_back(scale_case(s, dtype, flag));
      }
    }
  }
  return cases;
}

}  // namespace trireme::test
