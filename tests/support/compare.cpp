#include "tests/support/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/core/normal_number.h"

namespace trireme::test {
namespace {

constexpr size_t kGuard = 128;
constexpr std::byte kPattern{0xA5};

double element(const ConstTensor& t, int64_t offset) {
  switch (t.dtype()) {
    case DType::kF64: return t.as<double>()[offset];
    case DType::kF32: return t.as<float>()[offset];
    case DType::kBF16: return static_cast<float>(t.as<bf16>()[offset]);
    case DType::kF16: return static_cast<float>(t.as<f16>()[offset]);
    case DType::kI64: return static_cast<double>(t.as<int64_t>()[offset]);
    case DType::kI32: return t.as<int32_t>()[offset];
    case DType::kU16: return t.as<uint16_t>()[offset];
    case DType::kU8: return t.as<uint8_t>()[offset];
  }
  TRIREME_UNREACHABLE("dtype");
}

void set_element(const Tensor& t, int64_t i, double value) {
  dispatch_float("set_element", t.dtype(), [&]<class T>() {
    if constexpr (std::is_same_v<T, double>)
      t.as<T>()[i] = value;
    else
      t.as<T>()[i] = T(static_cast<float>(value));
  });
}

}  // namespace

Tolerance tolerance(DType storage, int64_t terms, DType accumulate) {
  if (storage == DType::kF64) accumulate = DType::kF64;
  const double stored = storage == accumulate ? 0.0 : dtype_eps(storage);
  const double summed = 6.0 * dtype_eps(accumulate) * std::sqrt(static_cast<double>(terms) + 1.0);
  return {stored + summed};
}

Tolerance between_computations(DType storage, int64_t terms, DType accumulate) {
  return {2.0 * tolerance(storage, terms, accumulate).relative};
}

std::vector<double> to_doubles(const ConstTensor& t) {
  std::vector<double> out;
  out.reserve(static_cast<size_t>(t.numel()));
  std::array<int64_t, kMaxRank> index{};
  for (int64_t n = 0; n < t.numel(); ++n) {
    int64_t offset = 0;
    for (int d = 0; d < t.rank(); ++d) offset += index[static_cast<size_t>(d)] * t.stride(d);
    out.push_back(element(t, offset));
    for (int d = t.rank() - 1; d >= 0; --d) {
      if (++index[static_cast<size_t>(d)] < t.size(d)) break;
      index[static_cast<size_t>(d)] = 0;
    }
  }
  return out;
}

namespace {

// Collects the elements whose error exceeds the tolerance, for the message.
class Differences {
 public:
  void check(size_t i, double got, double want, double allowed) {
    const double error = std::abs(got - want);
    const bool finite = std::isfinite(got) && std::isfinite(want);
    if (finite && error <= allowed) return;
    const double excess = finite ? error / std::max(allowed, kTiny) : INFINITY;
    if (count_++ == 0) first_ = describe(i, got, want);
    if (excess > worst_excess_) {
      worst_excess_ = excess;
      worst_ = describe(i, got, want);
    }
  }
  std::string message(size_t total, Tolerance tol) const {
    if (count_ == 0) return "";
    return concat(count_, " of ", total, " elements differ; first ", first_, "; worst ", worst_,
                  "; allowed relative ", tol.relative);
  }

 private:
  static constexpr double kTiny = 1e-300;  // keeps the ratio finite when no error is allowed
  static std::string describe(size_t i, double got, double want) {
    return concat("[", i, "] got ", got, " want ", want);
  }
  size_t count_ = 0;
  double worst_excess_ = -1;
  std::string first_, worst_;
};

// Distance between neighbours around zero: the minimum error of rounding to `dtype`.
double smallest_step(DType dtype) {
  if (!is_float(dtype)) return 0.0;
  const double smallest_normal = dtype == DType::kF64   ? std::numeric_limits<double>::min()
                                 : dtype == DType::kF16 ? 0x1p-14
                                                        : std::numeric_limits<float>::min();
  return smallest_normal * dtype_eps(dtype);
}

}  // namespace

std::string compare(const ConstTensor& got, const std::vector<double>& want, Tolerance tol) {
  const std::vector<double> values = to_doubles(got);
  if (values.size() != want.size())
    return concat("sizes differ: got ", values.size(), ", want ", want.size());
  const auto width = static_cast<size_t>(got.rank() == 0 ? 1 : std::max<int64_t>(1, got.size(-1)));
  Differences differences;
  for (size_t row = 0; row < values.size(); row += width) {
    double scale = 0;
    for (size_t i = row; i < row + width; ++i) scale = std::max(scale, std::abs(want[i]));
    for (size_t i = row; i < row + width; ++i)
      differences.check(i, values[i], want[i], tol.relative * scale);
  }
  return differences.message(values.size(), tol);
}

std::string compare_each(const ConstTensor& got, const std::vector<double>& want, Tolerance tol) {
  return compare_within(got, want, want, tol);
}

std::string compare_within(const ConstTensor& got, const std::vector<double>& want,
                           const std::vector<double>& magnitude, Tolerance tol) {
  const std::vector<double> values = to_doubles(got);
  if (values.size() != want.size() || values.size() != magnitude.size())
    return concat("sizes differ: got ", values.size(), ", want ", want.size(), ", magnitudes ",
                  magnitude.size());
  Differences differences;
  for (size_t i = 0; i < values.size(); ++i) {
    const double allowed = tol.relative * std::abs(magnitude[i]) + smallest_step(got.dtype());
    differences.check(i, values[i], want[i], std::isfinite(allowed) ? allowed : 0.0);
  }
  return differences.message(values.size(), tol);
}

std::string compare_exact(const ConstTensor& got, const ConstTensor& want) {
  if (!(got.shape() == want.shape()) || got.dtype() != want.dtype())
    return concat("got ", got.dtype(), got.shape(), ", want ", want.dtype(), want.shape());
  if (!got.contiguous() || !want.contiguous()) return "compare_exact needs contiguous tensors";
  const auto bytes = static_cast<size_t>(got.bytes());
  if (bytes == 0 || std::memcmp(got.raw(), want.raw(), bytes) == 0) return "";
  for (int64_t i = 0;; ++i)
    if (std::memcmp(static_cast<const std::byte*>(got.raw()) + i * dtype_size(got.dtype()),
                    static_cast<const std::byte*>(want.raw()) + i * dtype_size(got.dtype()),
                    static_cast<size_t>(dtype_size(got.dtype()))) != 0)
      return concat("bits differ first at [", i, "]: got ", element(got, i), " want ",
                    element(want, i));
}

std::vector<double> finite_difference_gradient(
    const std::function<std::vector<double>(const std::vector<double>&)>& f,
    const std::vector<double>& x, const std::vector<double>& dy, double step) {
  std::vector<double> gradient(x.size());
  std::vector<double> moved = x;
  const auto along = [&](size_t i, double offset) {
    moved[i] = x[i] + offset;
    const std::vector<double> y = f(moved);
    moved[i] = x[i];
    TRIREME_CHECK(y.size() == dy.size(), "f gave ", y.size(), " values, dy has ", dy.size());
    double sum = 0;
    for (size_t j = 0; j < y.size(); ++j) sum += dy[j] * y[j];
    return sum;
  };
  for (size_t i = 0; i < x.size(); ++i)
    gradient[i] =
        (8.0 * (along(i, step) - along(i, -step)) - (along(i, 2 * step) - along(i, -2 * step))) /
        (12.0 * step);
  return gradient;
}

double finite_difference_tolerance(double step) {
  return 1000.0 * (std::pow(step, 4) + dtype_eps(DType::kF64) / step);
}

double worst_relative(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return INFINITY;
  double scale = 0, worst = 0;
  for (double v : b) scale = std::max(scale, std::abs(v));
  for (size_t i = 0; i < a.size(); ++i) {
    const double error = std::abs(a[i] - b[i]);
    if (!std::isfinite(error)) return INFINITY;
    worst = std::max(worst, error);
  }
  return scale == 0 ? worst : worst / scale;
}

std::vector<double> normals(const std::string& name, int64_t n, double scale) {
  std::vector<double> out(static_cast<size_t>(n));
  const RandomKey key{20240229, stream_id(name)};
  for (size_t i = 0; i < out.size(); ++i) out[i] = scale * philox_normal(key, i);
  return out;
}

TestTensor::TestTensor(DType dtype, const Shape& shape) {
  const auto bytes = static_cast<size_t>(shape.numel() * dtype_size(dtype));
  storage_.assign(bytes + 2 * kGuard + 64, kPattern);
  const auto start = reinterpret_cast<uintptr_t>(storage_.data()) + kGuard;
  auto* data = reinterpret_cast<std::byte*>((start + 63) / 64 * 64);
  std::memset(data, 0, bytes);
  view_ = Tensor(data, dtype, shape);
}

TestTensor::TestTensor(DType dtype, const Shape& shape, const std::vector<double>& values)
    : TestTensor(dtype, shape) {
  TRIREME_CHECK(std::ssize(values) == shape.numel(), values.size(), " values for ", shape);
  for (size_t i = 0; i < values.size(); ++i) set_element(view_, static_cast<int64_t>(i), values[i]);
}

TestTensor::TestTensor(const Shape& shape, const std::vector<int32_t>& values)
    : TestTensor(DType::kI32, shape) {
  TRIREME_CHECK(std::ssize(values) == shape.numel(), values.size(), " values for ", shape);
  std::ranges::copy(values, view_.as<int32_t>());
}

TestTensor::TestTensor(const Shape& shape, const std::vector<int64_t>& values)
    : TestTensor(DType::kI64, shape) {
  TRIREME_CHECK(std::ssize(values) == shape.numel(), values.size(), " values for ", shape);
  std::ranges::copy(values, view_.as<int64_t>());
}

bool TestTensor::guards_intact() const {
  const auto* begin = static_cast<const std::byte*>(view_.raw());
  const auto* end = begin + view_.bytes();
  const auto pattern = [](std::byte b) { return b == kPattern; };
  return std::all_of(storage_.data(), begin, pattern) &&
         std::all_of(end, storage_.data() + storage_.size(), pattern);
}

}  // namespace trireme::test
