// Comparisons for all tests, and the one definition of their tolerances.
//
// tests/compare proves that each helper fails: on one wrong element, on NaN, on swapped rows.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/core/tensor.h"

namespace trireme::test {

// Allowed error of a value whose computation sums `terms` products in `accumulate` and stores the
// result, and at most one intermediate result, in `storage`:
//   two roundings to storage, half a unit in the last place each: eps(storage)
//     (none when storage and accumulate are the same type: the sum's own roundings cover it);
//   the sum: roundings of at most eps / 2 each, independent, so a random walk of sqrt(terms) steps;
//     six of its standard deviations bound the worst of several hundred thousand elements, and a
//     factor of two more allows for exp, tanh and sqrt in the terms: 6 eps sqrt(terms + 1).
// float64 storage always accumulates in float64.
struct Tolerance {
  double relative = 0;  // of the magnitude named by the comparison
};
Tolerance tolerance(DType storage, int64_t terms = 1, DType accumulate = DType::kF32);
// Allowed difference between two such computations, neither of which is exact: the sum of both
// errors.
Tolerance between_computations(DType storage, int64_t terms = 1, DType accumulate = DType::kF32);

// Elements as doubles, in row-major order of the view.
std::vector<double> to_doubles(const ConstTensor& t);

// All return "" or a message with the first and the worst element. A value that is not finite, on
// either side, is a difference.
// compare: every error is at most tol.relative times the largest |want| of the element's row (the
// last dimension): for sums, whose terms may cancel.
std::string compare(const ConstTensor& got, const std::vector<double>& want, Tolerance tol);
// compare_each: every error is at most tol.relative * |want|, plus one subnormal step of got's
// dtype: for elementwise functions, where a large value must not mask a small wrong one.
std::string compare_each(const ConstTensor& got, const std::vector<double>& want, Tolerance tol);
// compare_within: the same with magnitude[i] instead of |want|: for sums with cancellation, where
// the reference knows the sum of the terms' absolute values. An infinite magnitude always fails.
std::string compare_within(const ConstTensor& got, const std::vector<double>& want,
                           const std::vector<double>& magnitude, Tolerance tol);
std::string compare_exact(const ConstTensor& got, const ConstTensor& want);  // bit for bit

// Central differences of order four of f at x, in float64: gradient of sum(dy * f(x)).
//   f evaluates the op on x (as doubles) and returns its output (as doubles).
std::vector<double> finite_difference_gradient(
    const std::function<std::vector<double>(const std::vector<double>&)>& f,
    const std::vector<double>& x, const std::vector<double>& dy, double step = 1e-3);
// Accuracy of these differences: the truncation error is about step^4 and the rounding error eps /
// step, for functions whose derivatives are of the order of one; a factor of 1000 covers the fifth
// derivative and the cancellation in sums.
double finite_difference_tolerance(double step = 1e-3);
// Largest |a - b| relative to max(|b|); infinite for different sizes or values that are not finite.
double worst_relative(const std::vector<double>& a, const std::vector<double>& b);

// Deterministic test data: n normal values from the stream `name`.
std::vector<double> normals(const std::string& name, int64_t n, double scale = 1.0);

// Memory of a test tensor, with guard bands of a known pattern before and after it.
class TestTensor {
 public:
  TestTensor(DType dtype, const Shape& shape);  // zeros
  TestTensor(DType dtype, const Shape& shape, const std::vector<double>& values);
  TestTensor(const Shape& shape, const std::vector<int32_t>& values);  // int32
  TestTensor(const Shape& shape, const std::vector<int64_t>& values);  // int64
  TestTensor(TestTensor&&) = default;  // moving a vector does not move its elements
  TestTensor& operator=(TestTensor&&) = default;
  operator const Tensor&() const { return view_; }  // NOLINT: used as the tensor it owns
  const Tensor& operator*() const { return view_; }
  const Tensor* operator->() const { return &view_; }
  bool guards_intact() const;

 private:
  std::vector<std::byte> storage_;
  Tensor view_;
};

}  // namespace trireme::test

#define EXPECT_CLOSE(got, want, tol) EXPECT_EQ(::trireme::test::compare(got, want, tol), "")
#define EXPECT_EACH_CLOSE(got, want, tol) \
  EXPECT_EQ(::trireme::test::compare_each(got, want, tol), "")
#define EXPECT_WITHIN(got, want, magnitude, tol) \
  EXPECT_EQ(::trireme::test::compare_within(got, want, magnitude, tol), "")
#define EXPECT_SAME_BITS(got, want) EXPECT_EQ(::trireme::test::compare_exact(got, want), "")
