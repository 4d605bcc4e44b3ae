// Sampler on the emulated GPU, beyond the registry's cases: rows that are not finite, a row alone
// and in a batch, a recorded graph.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "engine/device/graph.h"
#include "engine/ops/rows/transfer.h"
#include "engine/ops/sampling/sample.h"
#include "tests/emulator/emulator.h"
#include "tests/support/compare.h"

namespace trireme::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kColumns = 5'003;

using Row = std::vector<float>;

Row random_row(const std::string& name, double scale) {
  const std::vector<double> values = normals(name, kColumns, scale);
  return {values.begin(), values.end()};
}

// Operands of sample_rows() on the device.
class DeviceRows {
 public:
  DeviceRows(Ctx& ctx, const std::vector<Row>& rows, const std::vector<RowSamplingParams>& params)
      : ctx_(ctx), rows_(std::ssize(rows)), params_(params) {
    set_logits(rows);
    fill(temperature_, [](const RowSamplingParams& p) { return p.temperature; });
    fill(top_p_, [](const RowSamplingParams& p) { return p.top_p; });
    fill(min_p_, [](const RowSamplingParams& p) { return p.min_p; });
    fill(top_k_, [](const RowSamplingParams& p) { return p.top_k; });
    fill(seed_, [](const RowSamplingParams& p) { return static_cast<int64_t>(p.seed); });
    set_position(0);
  }
  void set_logits(const std::vector<Row>& rows) {
    Row all;
    for (const Row& row : rows) all.insert(all.end(), row.begin(), row.end());
    upload(logits_, all);
  }
  void set_position(int64_t position) {
    upload(position_, std::vector<int64_t>(params_.size(), position));
  }
  void sample() {
    const auto column = [&](const Buffer& buffer, DType dtype) {
      return buffer.tensor(dtype, {rows_});
    };
    sample_rows(ctx_, column(id_, DType::kI32), column(logprob_, DType::kF64),
                logits_.tensor(DType::kF32, {rows_, kColumns}),
                {.temperature = column(temperature_, DType::kF64),
                 .top_p = column(top_p_, DType::kF64),
                 .min_p = column(min_p_, DType::kF64),
                 .top_k = column(top_k_, DType::kI64),
                 .seed = column(seed_, DType::kI64),
                 .position = column(position_, DType::kI64)});
  }
  std::vector<SampledToken> tokens() {
    const auto ids = to_host<int32_t>(ctx_, id_.tensor(DType::kI32, {rows_}));
    const auto logprobs = to_host<double>(ctx_, logprob_.tensor(DType::kF64, {rows_}));
    std::vector<SampledToken> out;
    for (size_t r = 0; r < ids.size(); ++r) out.push_back({ids[r], logprobs[r]});
    return out;
  }

 private:
  template <class T>
  void upload(Buffer& to, const std::vector<T>& values) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
    if (to.bytes() == 0) to = Buffer("operand", bytes, Memory::kDevice);
    cuda::upload(*ctx_.gpu, to.data(), values.data(), bytes);
  }
  template <class Value>
  void fill(Buffer& column, const Value& value) {
    std::vector<decltype(value(params_[0]))> values;
    for (const RowSamplingParams& p : params_) values.push_back(value(p));
    upload(column, values);
  }

  Ctx& ctx_;
  int64_t rows_;
  std::vector<RowSamplingParams> params_;
  Buffer logits_, temperature_, top_p_, min_p_, top_k_, seed_, position_;
  Buffer id_{"id", 4 * rows_, Memory::kDevice}, logprob_{"logprob", 8 * rows_, Memory::kDevice};
};

const std::vector<RowSamplingParams> kParams = {
    {.seed = 1},
    {.temperature = 0},
    {.temperature = 0.6, .top_p = 0.95, .seed = 2},
    {.temperature = 1.5, .top_k = 3'000, .seed = 3},
    {.min_p = 0.001, .seed = 4},
    {.temperature = 1e-4, .top_k = 700, .seed = 5},
    {.temperature = 1.2, .top_k = 2'000, .top_p = 0.9, .min_p = 0.0005, .seed = 6}};

void expect_tokens_of_host(const std::vector<SampledToken>& got, const std::vector<Row>& rows,
                           int64_t position,
                           const std::vector<RowSamplingParams>& params = kParams) {
  for (size_t r = 0; r < rows.size(); ++r) {
    const SampledToken want = sample_row(params[r], rows[r], position);
    EXPECT_EQ(got[r].id, want.id) << "row " << r << ", position " << position;
    EXPECT_NEAR(got[r].logprob, want.logprob, 1e-12);
  }
}

std::vector<Row> rows_of_all_params(const std::string& name, double scale) {
  std::vector<Row> rows;
  for (size_t r = 0; r < kParams.size(); ++r) rows.push_back(random_row(concat(name, r), scale));
  return rows;
}

class SampleOnGpu : public testing::Test {
 protected:
  void SetUp() override { emulator::reset(); }
};

TEST_F(SampleOnGpu, DrawsTheTokensOfTheHost) {
  const auto gpu = cuda::open(0);
  Ctx ctx(1, "test", gpu.get());
  for (const double scale : {0.02, 1.0, 5.0}) {
    SCOPED_TRACE(scale);
    const std::vector<Row> rows = rows_of_all_params("drawn", scale);
    DeviceRows there(ctx, rows, kParams);
    for (int64_t position = 0; position < 8; ++position) {
      there.set_position(position);
      there.sample();
      expect_tokens_of_host(there.tokens(), rows, position);
    }
  }
}

// A top_p that differs from the k-th running sum by 1e-12 keeps one token more or less, which
// changes the sum that u scales.
TEST_F(SampleOnGpu, KeepsTheTokensOfTheHostAtABoundary) {
  const auto gpu = cuda::open(0);
  Ctx ctx(1, "test", gpu.get());
  const Row row = random_row("boundary", 1.0);
  Row sorted = row;
  std::ranges::sort(sorted, std::greater());
  std::vector<long double> running{0};
  for (const float logit : sorted)
    running.push_back(running.back() + std::exp(static_cast<long double>(logit) - sorted[0]));
  std::vector<RowSamplingParams> params;
  for (const size_t k : {1, 2, 60, 700, 2'500, 4'900})
    for (const double margin : {-1e-12, 1e-12})
      params.push_back(
          {.top_p = static_cast<double>(running[k] / running.back()) * (1 + margin), .seed = k});
  const std::vector<Row> rows(params.size(), row);
  DeviceRows there(ctx, rows, params);
  for (int64_t position = 0; position < 12; ++position) {
    there.set_position(position);
    there.sample();
    expect_tokens_of_host(there.tokens(), rows, position, params);
  }
}

TEST_F(SampleOnGpu, ARowHasTheSameBitsAloneAndInABatch) {
  const auto gpu = cuda::open(0);
  Ctx ctx(1, "test", gpu.get());
  const std::vector<Row> rows = rows_of_all_params("batch", 2.0);
  DeviceRows all(ctx, rows, kParams);
  all.sample();
  const std::vector<SampledToken> together = all.tokens();
  for (size_t r = 0; r < rows.size(); ++r) {
    DeviceRows one(ctx, {rows[r]}, {kParams[r]});
    one.sample();
    const SampledToken alone = one.tokens()[0];
    EXPECT_EQ(alone.id, together[r].id) << r;
    EXPECT_EQ(std::bit_cast<uint64_t>(alone.logprob), std::bit_cast<uint64_t>(together[r].logprob))
        << r;
  }
}

TEST_F(SampleOnGpu, MarksRowsThatAreNotFinite) {
  const auto gpu = cuda::open(0);
  Ctx ctx(1, "test", gpu.get());
  std::vector<Row> rows;
  for (const float bad : {std::nanf(""), -std::nanf(""), kInfinity})
    for (const int64_t at : {int64_t{0}, int64_t{2'047}, int64_t{2'048}, kColumns - 1}) {
      rows.push_back(random_row("bad", 1.0));
      rows.back()[static_cast<size_t>(at)] = bad;
    }
  rows.emplace_back(kColumns, -kInfinity);
  const size_t bad = rows.size();
  rows.push_back(random_row("good", 1.0));  // next to them
  for (const RowSamplingParams& params : {RowSamplingParams{.top_p = 0.5}, {.temperature = 0}}) {
    DeviceRows there(ctx, rows, std::vector<RowSamplingParams>(rows.size(), params));
    there.sample();
    const std::vector<SampledToken> got = there.tokens();
    for (size_t r = 0; r < bad; ++r) {
      EXPECT_EQ(got[r].id, -1) << r;
      EXPECT_TRUE(std::isnan(got[r].logprob)) << r;
    }
    EXPECT_EQ(got[bad].id, sample_row(params, rows[bad], 0).id);
  }
}

TEST_F(SampleOnGpu, ARecordedGraphSamplesFromOtherLogits) {
  const auto gpu = cuda::open(0);
  Ctx ctx(1, "test", gpu.get());
  DeviceRows there(ctx, rows_of_all_params("recorded", 3.0), kParams);
  ctx.arena.begin_planning();
  there.sample();
  const ArenaPlan plan = ctx.arena.end_planning();
  ctx.arena.reserve(plan.capacity);
  const auto step = [&] {
    ctx.arena.begin_step(plan);
    there.sample();
    ctx.arena.end_step();
  };
  step();
  const int64_t before = gpu->launches;
  const cuda::Graph graph = cuda::capture(*gpu, step);
  EXPECT_LE(gpu->launches - before, 4);  // nodes of the graph
  for (int64_t position = 1; position < 5; ++position) {
    const std::vector<Row> rows = rows_of_all_params(concat("step", position), 3.0);
    there.set_logits(rows);
    there.set_position(position);
    cuda::replay(*gpu, graph);
    expect_tokens_of_host(there.tokens(), rows, position);
  }
}

}  // namespace
}  // namespace trireme::test
