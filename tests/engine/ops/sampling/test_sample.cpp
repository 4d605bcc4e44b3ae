#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/ops/sampling/sample.h"
#include "tests/support/op_run.h"

namespace trireme::test::test_sample {
namespace {

// Keeps, of sorted ids, those whose surprise is nearest to the mean until they have the mass.
// Returns their sum.
double keep_typical(std::vector<int>& order, const auto& weight, double mass) {
  double sum = 0, entropy = 0, left = 0;
  for (int id : order) sum += weight(id);
  const auto surprise = [&](int id) { return -std::log(weight(id) / sum); };
  for (int id : order)
    if (weight(id) > 0) entropy += weight(id) / sum * surprise(id);
  std::vector<int> usual = order;
  std::ranges::stable_sort(usual, [&](int a, int b) {
    return std::abs(surprise(a) - entropy) < std::abs(surprise(b) - entropy);
  });
  size_t count = 0;
  while (count < usual.size() && left < mass * sum) left += weight(usual[count++]);
  usual.resize(count);
  std::ranges::sort(usual);
  std::erase_if(order, [&](int id) { return !std::ranges::binary_search(usual, id); });
  return left;
}

// The rule of the header, on the probabilities of a sorted row.
int plain_sample(const std::vector<double>& logits, const RowSamplingParams& p, int64_t position) {
  std::vector<int> order;
  for (size_t i = 0; i < logits.size(); ++i) order.push_back(static_cast<int>(i));
  std::ranges::stable_sort(order, [&](int a, int b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  if (p.temperature == 0) return order[0];
  const double largest = logits[static_cast<size_t>(order[0])];
  const auto weight = [&](int id) {
    return std::exp((logits[static_cast<size_t>(id)] - largest) / p.temperature);
  };
  if (p.top_k > 0 && p.top_k < std::ssize(order)) order.resize(static_cast<size_t>(p.top_k));
  double total = 0, sum = 0;
  for (int id : order) total += weight(id);
  size_t kept = 0;
  while (kept < order.size() && (kept == 0 || sum < p.top_p * total)) sum += weight(order[kept++]);
  while (kept > 1 && weight(order[kept - 1]) < p.min_p) sum -= weight(order[--kept]);
  order.resize(kept);
  if (p.typical_p < 1) sum = keep_typical(order, weight, p.typical_p);
  kept = order.size();
  double running = 0;
  const double target = sampling_uniform(p.seed, position) * sum;
  for (size_t i = 0; i < kept; ++i)
    if ((running += weight(order[i])) > target) return order[i];
  return order[kept - 1];
}

const std::vector<RowSamplingParams> kAsked = {
    {},
    {.temperature = 0},
    {.top_k = 3},
    {.temperature = 0.5, .top_p = 0.7},
    {.min_p = 0.1},
    {.temperature = 1.7, .top_k = 30, .top_p = 0.95, .min_p = 0.02}};

struct Asked {
  TestTensor temperature, top_p, min_p, top_k, seed, position;
  std::vector<RowSamplingParams> params;
  SampleRows rows() const { return {temperature, top_p, min_p, top_k, seed, position}; }
};

Asked ask(int64_t rows) {
  std::vector<double> temperature, top_p, min_p;
  std::vector<int64_t> top_k, seed, position;
  std::vector<RowSamplingParams> params;
  for (int64_t r = 0; r < rows; ++r) {
    RowSamplingParams p = kAsked[static_cast<size_t>(r) % kAsked.size()];
    p.seed = static_cast<uint64_t>(r * 77 + 5);
    temperature.push_back(p.temperature);
    top_p.push_back(p.top_p);
    min_p.push_back(p.min_p);
    top_k.push_back(p.top_k);
    seed.push_back(static_cast<int64_t>(p.seed));
    position.push_back(r * r + 1);
    params.push_back(p);
  }
  const Shape s{rows};
  return {.temperature = TestTensor(DType::kF64, s, temperature),
          .top_p = TestTensor(DType::kF64, s, top_p),
          .min_p = TestTensor(DType::kF64, s, min_p),
          .top_k = TestTensor(s, top_k),
          .seed = TestTensor(s, seed),
          .position = TestTensor(s, position),
          .params = params};
}

TEST(SampleRows, FollowsTheRule) {
  const int64_t rows = 120, columns = 200;
  std::vector<double> values = stored(DType::kF32, normals("logits", rows * columns, 2.0));
  for (size_t i = 0; i < values.size() / 2; ++i) values[i] = std::round(values[i]);  // ties
  const TestTensor logits(DType::kF32, {rows, columns}, values);
  const Asked asked = ask(rows);
  for_each_kernel([&](Ctx& ctx) {
    TestTensor id(DType::kI32, {rows}), logprob(DType::kF64, {rows});
    sample_rows(ctx, id, logprob, logits, asked.rows());
    for (int64_t r = 0; r < rows; ++r) {
      const auto row = values.begin() + r * columns;
      const std::vector<double> l(row, row + columns);
      const int want = plain_sample(l, asked.params[static_cast<size_t>(r)], r * r + 1);
      EXPECT_EQ(id->as<int32_t>()[r], want) << r;
      double sum = 0;
      for (double v : l) sum += std::exp(v);
      EXPECT_NEAR(logprob->as<double>()[r], l[static_cast<size_t>(want)] - std::log(sum), 1e-12);
    }
    return outputs(id, logprob);
  });
}

// Partial sorting gives the same result as sorting everything, with the same seeds.
TEST(SampleRow, IsThatOfASortedRow) {
  int others = 0;
  for (const int64_t columns : {1, 3, 700, 5000})
    for (const double spread : {0.01, 2.0, 30.0}) {
      std::vector<double> l = stored(DType::kF32, normals("row", columns, spread));
      for (size_t i = 0; i < l.size(); i += 3) l[i] = std::round(l[i]);  // ties
      for (size_t i = 5; i < l.size(); i += 7) l[i] = -std::numeric_limits<double>::infinity();
      const std::vector<float> row(l.begin(), l.end());
      for (RowSamplingParams p : {RowSamplingParams{},
                                  {.temperature = 0.3},
                                  {.top_p = 0.9},
                                  {.top_p = 1e-9},
                                  {.min_p = 0.05},
                                  {.min_p = 1},
                                  {.temperature = 3, .top_p = 0.999, .min_p = 1e-4},
                                  {.top_k = 40},
                                  {.top_k = 400, .top_p = 0.8, .typical_p = 0.7},
                                  {.typical_p = 0.3},
                                  {.temperature = 0.8, .top_p = 0.99, .typical_p = 0.9}})
        for (int64_t position = 0; position < (columns > 1000 ? 3 : 40); ++position) {
          p.seed = static_cast<uint64_t>(columns) + 3;
          const int got = sample_row(p, row, position).id;
          EXPECT_EQ(got, plain_sample(l, p, position))
              << columns << " spread " << spread << " temperature " << p.temperature << " top_k "
              << p.top_k << " top_p " << p.top_p << " min_p " << p.min_p << " typical_p "
              << p.typical_p << " position " << position;
          others += got == plain_sample(l, {.temperature = 0}, 0) ? 0 : 1;
        }
    }
  EXPECT_GT(others, 200);
}

// Rows whose tokens do not spread over the bins: ties, clusters, one far from the others.
TEST(SampleRow, OfRowsThatBinsDoNotDivide) {
  const int64_t columns = 6000;
  const std::vector<double> random = stored(DType::kF32, normals("row", columns, 3.0));
  std::vector<std::vector<double>> rows(5, random);
  rows[0].assign(rows[0].size(), 2.5);
  for (double& l : rows[1]) l = std::round(l);
  for (size_t i = 0; i < rows[2].size(); ++i) rows[2][i] *= 1e-4;
  rows[2][77] = -90;
  rows[3] = rows[2];
  rows[3][78] = 100;
  for (size_t i = 0; i < rows[4].size(); ++i)
    rows[4][i] = static_cast<double>(i % 2) + 1e-30 * static_cast<double>(i);
  for (std::vector<double>& l : rows) l = stored(DType::kF32, l);
  for (size_t r = 0; r < rows.size(); ++r) {
    const std::vector<float> row(rows[r].begin(), rows[r].end());
    for (RowSamplingParams p :
         {RowSamplingParams{},
          {.temperature = 100},
          {.temperature = 100, .top_k = 5000, .top_p = 0.9},
          {.top_k = 3000},
          {.temperature = 50, .min_p = 0.9},
          {.temperature = 100, .typical_p = 0.5},
          {.temperature = 1e-3, .typical_p = 0.5},
          {.temperature = 20, .top_k = 5500, .top_p = 0.97, .typical_p = 0.2}})
      for (int64_t position = 0; position < 4; ++position) {
        p.seed = 3;
        EXPECT_EQ(sample_row(p, row, position).id, plain_sample(rows[r], p, position))
            << r << " temperature " << p.temperature << " top_k " << p.top_k << " top_p " << p.top_p
            << " min_p " << p.min_p << " typical_p " << p.typical_p << " position " << position;
      }
  }
}

TEST(SampleRow, FirstOfARow) {
  const std::vector<float> row{1, 5, 5, -2, 7, 5};
  std::vector<int32_t> order;
  first_of_row(row, 4, order);
  EXPECT_EQ(order, (std::vector<int32_t>{4, 1, 2, 5}));
  first_of_row(row, 9, order);
  EXPECT_EQ(order, (std::vector<int32_t>{4, 1, 2, 5, 0, 3}));
  first_of_row(row, 0, order);
  EXPECT_EQ(order, std::vector<int32_t>());
}

TEST(SampleRows, MarksRowsThatAreNotFinite) {
  const double infinity = std::numeric_limits<double>::infinity();
  const TestTensor logits(DType::kF32, {4, 3},
                          {0, std::nan(""), 1, infinity, 0, 0, -infinity, -infinity, -infinity,
                           -infinity, 2, -infinity});
  const Asked asked = ask(4);
  Ctx ctx(1, "test");
  const TestTensor id(DType::kI32, {4}), logprob(DType::kF64, {4});
  sample_rows(ctx, id, logprob, logits, asked.rows());
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(id->as<int32_t>()[r], -1);
    EXPECT_TRUE(std::isnan(logprob->as<double>()[r]));
  }
  EXPECT_EQ(id->as<int32_t>()[3], 1);
  EXPECT_EQ(logprob->as<double>()[3], 0.0);
}

TEST(SampleRows, RefusesOtherShapesAndTypes) {
  Ctx ctx(1, "test");
  const Asked asked = ask(2), more = ask(3);
  const TestTensor logits(DType::kF32, {2, 4}), id(DType::kI32, {2}), logprob(DType::kF64, {2});
  sample_rows(ctx, id, logprob, logits, asked.rows());
  EXPECT_THROW(sample_rows(ctx, id, logprob, logits, more.rows()), Error);
  EXPECT_THROW(sample_rows(ctx, logprob, logprob, logits, asked.rows()), Error);
  EXPECT_THROW(sample_rows(ctx, id, logprob, TestTensor(DType::kF32, {2, 0}), asked.rows()), Error);
}

TEST(SampleRows, PlanningWritesNothing) {
  const Asked asked = ask(2);
  const TestTensor logits(DType::kF32, {2, 4}), id(DType::kI32, {2}), logprob(DType::kF64, {2});
  expect_plannable([&](Ctx& ctx) { sample_rows(ctx, id, logprob, logits, asked.rows()); },
                   {&id, &logprob});
}

}  // namespace
}  // namespace trireme::test::test_sample
