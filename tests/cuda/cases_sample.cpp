#include <cmath>
#include <limits>

#include "engine/ops/sampling/sample.h"
#include "tests/cuda/registry.h"

namespace trireme::test {
namespace {

// Sampling parameters that the rows use in turn: each filter alone, all together, and none.
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
                                 {.temperature = 100, .top_p = 0.5, .top_k = 1 << 20},
                                 {.temperature = 0.01, .top_k = 600},
                                 {.top_p = 0.97, .min_p = 1e-4, .top_k = 1500}};

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

OpCase random_case(int64_t rows, int64_t columns, double low, double high,
                   const std::string& what = "", bool large = false) {
  return sample_case(
      rows, columns, what,
      [=](OpRun& run) {
        return run.random("logits", DType::kF32, {rows, columns}, low, high);
      },
      large);
}

// Logits computed from a random number in [0, 1) and the id.
OpCase made_case(int64_t rows, int64_t columns, const std::string& what,
                 const std::function<double(double, int64_t)>& logit) {
  return sample_case(rows, columns, what, [=](OpRun& run) {
    return run.made("logits", DType::kF32, {rows, columns}, [=] {
      std::vector<double> values;
      for (int64_t i = 0; i < rows * columns; ++i)
        values.push_back(
            logit(philox_word({1, 2}, static_cast<uint64_t>(i)) * 0x1p-32, i % columns));
      return values;
    });
  });
}

// Rows of many parts, with sizes that are not a multiple of a part or of a vector.
void add_long_rows(std::vector<OpCase>& cases) {
  const double infinity = std::numeric_limits<double>::infinity();
  cases.push_back(random_case(24, 20'001, -0.5, 0.5, " uniform"));
  cases.push_back(random_case(12, 50'257, -40.0, 40.0, " far apart"));
  // As in a real model: few tokens have nearly all of the probability.
  cases.push_back(made_case(24, 9'999, " peaked", [](double x, int64_t) {
    return 3 * std::log((x + 1e-6) / (1 - x + 1e-6));
  }));
  // Ties over several parts, more than are sorted together.
  cases.push_back(made_case(12, 8'195, " all equal", [](double, int64_t) { return -3.25; }));
  cases.push_back(made_case(24, 6'001, " few levels",
                            [](double x, int64_t) { return 0.5 * std::floor(4 * x); }));
  // The first 5 and 40 end in a tie with tokens in several parts.
  cases.push_back(made_case(24, 7'000, " ties at top_k", [](double x, int64_t id) {
    return id % 1'000 == 999 ? 2.0 : id % 100 == 7 ? 1.5 : x;
  }));
  // Most logits share one bin, and many of these share their upper bits.
  cases.push_back(made_case(12, 5'001, " close together",
                            [](double x, int64_t id) { return id == 1'234 ? 60.0 : 1e-4 * x; }));
  cases.push_back(made_case(12, 9'001, " masked", [=](double x, int64_t id) {
    return id % 1'511 == 3 ? 4 * x : -infinity;
  }));
  cases.push_back(made_case(12, 4'097, " with one token",
                            [=](double, int64_t id) { return id == 4'096 ? -7.0 : -infinity; }));
  cases.push_back(made_case(12, 2'500, " of the largest numbers",
                            [](double x, int64_t) { return (x < 0.5 ? -3e38 : 3e38) * x; }));
}

}  // namespace

std::vector<OpCase> sample_cases() {
  std::vector<OpCase> cases;
  for (const Shape& shape : std::vector<Shape>{{0, 5}, {12, 1}, {12, 7}, {24, 513}, {12, 3000}})
    cases.push_back(random_case(shape[0], shape[1], -6.0, 6.0));
  // Many ties, in which lower ids come first; both zeros are equal.
  cases.push_back(sample_case(24, 700, " ties", [](OpRun& run) {
    std::vector<double> values;
    for (int64_t i = 0; i < 24 * 700; ++i) {
      const auto level = static_cast<double>(philox_word({1, 2}, static_cast<uint64_t>(i)) % 4);
      values.push_back(level == 0 && i % 2 == 0 ? -0.0 : level);
    }
    return run.values("logits", DType::kF32, {24, 700}, values);
  }));
  // Tokens that the mask forbids.
  cases.push_back(sample_case(12, 600, " of which few are allowed", [](OpRun& run) {
    std::vector<double> values(12 * 600, -std::numeric_limits<double>::infinity());
    for (size_t i = 0; i < values.size(); i += 97) values[i] = static_cast<double>(i % 11) - 20;
    return run.values("logits", DType::kF32, {12, 600}, values);
  }));
  // Columns of a wider matrix, whose rows have different alignments.
  cases.push_back(sample_case(12, 2'050, " of wider rows", [](OpRun& run) {
    return run.random("logits", DType::kF32, {12, 2'063}, -6.0, 6.0).slice(1, 0, 2'050);
  }));
  add_long_rows(cases);
  cases.push_back(random_case(64, 151'936, -6.0, 6.0, "", true));
  cases.push_back(random_case(128, 128'256, -0.5, 0.5, " uniform", true));
  return cases;
}

}  // namespace trireme::test
