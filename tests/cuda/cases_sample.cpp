#include <limits>

#include "engine/ops/sample.h"
#include "tests/cuda/registry.h"

namespace trireme::test {
namespace {

// What rows ask for, over and over: each filter alone, together, and none.
struct Ask {
  double temperature = 1, top_p = 1, min_p = 0;
  int64_t top_k = 0;
};
const std::vector<Ask> kAsked = {{},
                                 {.temperature = 0},
                                 {.temperature = 0.7, .top_k = 5},
                                 {.temperature = 2.5, .top_p = 0.9},
                                 {.min_p = 0.2},
                                 {.temperature = 1.3, .top_p = 0.8, .min_p = 0.01, .top_k = 40},
                                 {.top_k = 1},
                                 {.top_p = 1e-9},
                                 {.min_p = 1.0},
                                 {.temperature = 100, .top_p = 0.5, .top_k = 1 << 20}};

std::vector<double> of_rows(int64_t rows, const std::function<double(const Ask&)>& f) {
  std::vector<double> out;
  for (int64_t r = 0; r < rows; ++r)
    out.push_back(f(kAsked[static_cast<size_t>(r) % kAsked.size()]));
  return out;
}

SampleRows ask(OpRun& run, int64_t rows) {
  const auto reals = [&](const char* name, const std::function<double(const Ask&)>& f) {
    return run.values(name, DType::kF64, {rows}, of_rows(rows, f));
  };
  const auto top_k = of_rows(rows, [](const Ask& a) { return static_cast<double>(a.top_k); });
  return {.temperature = reals("temperature", [](const Ask& a) { return a.temperature; }),
          .top_p = reals("top_p", [](const Ask& a) { return a.top_p; }),
          .min_p = reals("min_p", [](const Ask& a) { return a.min_p; }),
          .top_k = run.values("top_k", DType::kI64, {rows}, top_k),
          .seed = run.integers("seed", DType::kI64, {rows}, 0, 1 << 30),
          .position = run.integers("position", DType::kI64, {rows}, 0, 100'000)};
}

OpCase sample_case(int64_t rows, int64_t columns, const std::string& what,
                   const std::function<ConstTensor(OpRun&)>& logits, bool large = false) {
  const auto body = [=](OpRun& run) {
    sample_rows(run.ctx, run.output("id", DType::kI32, {rows}, exact()),
                run.output("logprob", DType::kF64, {rows}, whole(columns)), logits(run),
                ask(run, rows));
  };
  return {.op = "sample_rows",
          .shape = concat("(", rows, ", ", columns, ")", what),
          .dtype = DType::kF32,
          .body = body,
          .bytes = 4.0 * static_cast<double>(rows * columns),
          .large = large};
}

}  // namespace

std::vector<OpCase> sample_cases() {
  std::vector<OpCase> cases;
  for (const Shape& shape : std::vector<Shape>{{0, 5}, {10, 1}, {10, 7}, {20, 513}, {10, 3000}})
    cases.push_back(sample_case(shape[0], shape[1], "", [shape](OpRun& run) {
      return run.random("logits", DType::kF32, shape, -6.0, 6.0);
    }));
  // Many ties, of which the lower ids come first; both zeros are one value.
  cases.push_back(sample_case(20, 700, " ties", [](OpRun& run) {
    std::vector<double> values;
    for (int64_t i = 0; i < 20 * 700; ++i) {
      const auto level = static_cast<double>(philox_word({1, 2}, static_cast<uint64_t>(i)) % 4);
      values.push_back(level == 0 && i % 2 == 0 ? -0.0 : level);
    }
    return run.values("logits", DType::kF32, {20, 700}, values);
  }));
  // Forbidden tokens.
  cases.push_back(sample_case(10, 600, " of which few are allowed", [](OpRun& run) {
    std::vector<double> values(10 * 600, -std::numeric_limits<double>::infinity());
    for (size_t i = 0; i < values.size(); i += 97) values[i] = static_cast<double>(i % 11) - 20;
    return run.values("logits", DType::kF32, {10, 600}, values);
  }));
  cases.push_back(sample_case(
      64, 151'936, "",
      [](OpRun& run) {
        return run.random("logits", DType::kF32, {64, 151'936}, -6.0, 6.0);
      },
      true));
  return cases;
}

}  // namespace trireme::test
