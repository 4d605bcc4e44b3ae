// Comparisons used by every test, and the one table their tolerances come from.
//
// tests/compare proves that each helper fails: on one wrong element, on NaN, on swapped rows.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/core/tensor.h"

namespace trireme::test {

// Allowed error of a value whose computation rounds to `storage` once and sums `terms` products in
// `accumulate`: half an ulp of storage for the result (times 2 for intermediates that are stored too),
// and the random-walk growth eps * sqrt(terms) of the sum, with a factor for constants that a
// worst case of several hundred thousand elements needs (a normal tail of 6 sigma).
struct Tolerance {
  double relative = 0;  // of the magnitude passed along with the value
};
Tolerance tolerance(DType storage, int64_t terms = 1, DType accumulate = DType::kF32);

// Elements as doubles, in row-major order of the view.
std::vector<double> to_doubles(const ConstTensor& t);

// Passes when |got - want| <= tol.relative * max(|want|, scale) for every element and all are
// finite, where `scale` is the largest |want| of the tensor's row. Returns "" or a message that
// names the first and the worst element.
std::string compare(const ConstTensor& got, const std::vector<double>& want, Tolerance tol);
std::string compare_exact(const ConstTensor& got, const ConstTensor& want);  // bit for bit

// Central differences of order four of f at x, in float64: the gradient of sum(dy * f(x)).
//   f evaluates the op on x (as doubles) and returns its output (as doubles).
std::vector<double> finite_difference_gradient(
    const std::function<std::vector<double>(const std::vector<double>&)>& f,
    const std::vector<double>& x, const std::vector<double>& dy, double step = 1e-3);
// Largest |a - b| over max(|b|): 1e-7 is what four-point differences reach in float64.
double worst_relative(const std::vector<double>& a, const std::vector<double>& b);

// Deterministic test data: n normal values of the stream `name`.
std::vector<double> normals(const std::string& name, int64_t n, double scale = 1.0);

// Owns the memory of a test tensor; guard bands of a known pattern lie before and after it.
class TestTensor {
 public:
  TestTensor(DType dtype, const Shape& shape);  // zeros
  TestTensor(DType dtype, const Shape& shape, const std::vector<double>& values);
  TestTensor(const Shape& shape, const std::vector<int32_t>& values);  // int32
  TestTensor(const Shape& shape, const std::vector<int64_t>& values);  // int64
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
