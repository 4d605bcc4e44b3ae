#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/core/cpu.h"
#include "engine/ops/rows/reduce.h"
#include "tests/support/compare.h"

namespace trireme::test_reduce {
namespace {

using test::TestTensor;

constexpr int64_t kSizes[] = {0, 1, 7, 33, 127, 1000, 1024, 1025, 5000};

std::vector<Isa> isas() {
  std::vector<Isa> supported;
  for (Isa isa : {Isa::kAvx512, Isa::kAvx2, Isa::kPortable})
    if (has_isa(isa)) supported.push_back(isa);
  return supported;
}

class Reduce : public ::testing::Test {
 protected:
  ~Reduce() override { set_active_isa(best_isa()); }
};

// Result with one rounding per addition (float32, float64) or one in total (16 bits).
double reference(DType dtype, ReduceOp op, const std::vector<double>& values) {
  double all = values[0];
  for (size_t j = 1; j < values.size(); ++j) {
    const double x = values[j];
    all = op == ReduceOp::kSum   ? all + x
          : op == ReduceOp::kMax ? std::max(all, x)
                                 : std::min(all, x);
    if (dtype != DType::kF64) all = static_cast<double>(static_cast<float>(all));
  }
  if (dtype == DType::kBF16) return static_cast<double>(static_cast<float>(bf16(float(all))));
  if (dtype == DType::kF16) return static_cast<double>(static_cast<float>(f16(float(all))));
  return all;
}

void check_floats(DType dtype, ReduceOp op, size_t count, int64_t n) {
  std::vector<TestTensor> in;
  std::vector<const void*> pointers;
  for (size_t j = 0; j < count; ++j) {
    in.emplace_back(dtype, Shape{n}, test::normals(concat("input ", j), n));
    pointers.push_back(in.back()->raw());
  }
  std::vector<std::vector<double>> values;
  for (const TestTensor& t : in) values.push_back(test::to_doubles(*t));
  const TestTensor out(dtype, {n});
  reduce_ranges(dtype, op, out->raw(), pointers, n);
  reduce_ranges(dtype, op, in.back()->raw(), pointers, n);  // in place
  EXPECT_TRUE(out.guards_intact());
  EXPECT_EQ(test::compare_exact(*in.back(), *out), "");
  const std::vector<double> got = test::to_doubles(*out);
  for (size_t i = 0; i < got.size(); ++i) {
    std::vector<double> column;
    for (const auto& v : values) column.push_back(v[i]);
    ASSERT_EQ(got[i], reference(dtype, op, column)) << dtype_name(dtype) << " " << i;
  }
}

TEST_F(Reduce, FloatsInOrderAndRoundedOnce) {
  for (Isa isa : isas()) {
    set_active_isa(isa);
    for (DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16})
      for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin})
        for (size_t count : {1u, 2u, 3u, 5u})
          for (int64_t n : kSizes) check_floats(dtype, op, count, n);
  }
}

TEST_F(Reduce, IntegersWrapAround) {
  for (Isa isa : isas()) {
    set_active_isa(isa);
    constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();
    const TestTensor a({3}, std::vector<int64_t>{kMaxInt64, -5, 7}),
        b({3}, std::vector<int64_t>{1, 2, 3});
    const TestTensor out({3}, std::vector<int64_t>{0, 0, 0});
    const std::array<const void*, 2> in{a->raw(), b->raw()};
    reduce_ranges(DType::kI64, ReduceOp::kSum, out->raw(), in, 3);
    EXPECT_EQ(out->as<int64_t>()[0], std::numeric_limits<int64_t>::min());
    EXPECT_EQ(out->as<int64_t>()[1], -3);
    reduce_ranges(DType::kI64, ReduceOp::kMin, out->raw(), in, 3);
    EXPECT_EQ(out->as<int64_t>()[1], -5);
    EXPECT_EQ(out->as<int64_t>()[2], 3);
    const TestTensor c({1}, std::vector<int32_t>{std::numeric_limits<int32_t>::max()});
    const TestTensor sum({1}, std::vector<int32_t>{0});
    const std::array<const void*, 2> twice{c->raw(), c->raw()};
    reduce_ranges(DType::kI32, ReduceOp::kSum, sum->raw(), twice, 1);
    EXPECT_EQ(sum->as<int32_t>()[0], -2);
  }
}

TEST_F(Reduce, KeepsNaN) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  for (Isa isa : isas()) {
    set_active_isa(isa);
    for (DType dtype : {DType::kF64, DType::kF32, DType::kBF16})
      for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin}) {
        const TestTensor a(dtype, {2}, {kNaN, 1.0}), b(dtype, {2}, {1.0, kNaN}), out(dtype, {2});
        const std::array<const void*, 2> in{a->raw(), b->raw()};
        reduce_ranges(dtype, op, out->raw(), in, 2);
        for (double value : test::to_doubles(*out)) EXPECT_TRUE(std::isnan(value));
      }
  }
}

TEST_F(Reduce, PartialSumsAreRoundedAtTheEnd) {
  for (Isa isa : isas()) {
    set_active_isa(isa);
    for (DType dtype : {DType::kBF16, DType::kF16})
      for (int64_t n : kSizes) {
        const TestTensor x(dtype, {n}, test::normals("x", n)), y(dtype, {n});
        const TestTensor acc(DType::kF32, {n}, test::normals("acc", n));
        const std::vector<double> xs = test::to_doubles(*x), before = test::to_doubles(*acc);
        accumulate_as_float(dtype, acc->as<float>(), x->raw(), n);
        round_from_float(dtype, y->raw(), acc->as<float>(), n);
        const std::vector<double> got = test::to_doubles(*y);
        for (size_t i = 0; i < got.size(); ++i)
          ASSERT_EQ(got[i], reference(dtype, ReduceOp::kSum, {before[i], xs[i]}));
        EXPECT_TRUE(y.guards_intact() && acc.guards_intact());
      }
  }
}

TEST_F(Reduce, RefusesOtherDtypes) {
  uint8_t byte = 0;
  const std::array<const void*, 1> in{&byte};
  EXPECT_THROW(reduce_ranges(DType::kU8, ReduceOp::kSum, &byte, in, 1), Error);
  EXPECT_THROW(reduce_ranges(DType::kF32, ReduceOp::kSum, &byte, {}, 0), Error);
}

}  // namespace
}  // namespace trireme::test_reduce
