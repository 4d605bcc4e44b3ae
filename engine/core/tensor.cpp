#include "engine/core/tensor.h"

#include <algorithm>

namespace trireme {

int64_t checked_mul(int64_t a, int64_t b) {
  int64_t out = 0;
  TRIREME_CHECK(a >= 0 && b >= 0 && !__builtin_mul_overflow(a, b, &out), "size ", a, " x ", b,
                " is negative or overflows 64 bits");
  return out;
}

int64_t checked_add(int64_t a, int64_t b) {
  int64_t out = 0;
  TRIREME_CHECK(a >= 0 && b >= 0 && !__builtin_add_overflow(a, b, &out), "size ", a, " + ", b,
                " is negative or overflows 64 bits");
  return out;
}

Shape::Shape(std::initializer_list<int64_t> dims)
    : Shape(std::span<const int64_t>(dims.begin(), dims.size())) {}

Shape::Shape(std::span<const int64_t> dims) : rank_(static_cast<int>(dims.size())) {
  TRIREME_CHECK(dims.size() <= kMaxRank, "rank ", dims.size(), " is above ", kMaxRank);
  for (size_t i = 0; i < dims.size(); ++i) {
    TRIREME_CHECK(dims[i] >= 0, "dimension ", i, " is ", dims[i]);
    dims_[i] = dims[i];
  }
}

int64_t Shape::numel() const {
  int64_t n = 1;
  for (int64_t d : dims()) n = checked_mul(n, d);
  return n;
}

bool Shape::operator==(const Shape& other) const {
  return std::ranges::equal(dims(), other.dims());
}

std::string Shape::str() const {
  std::string out = "(";
  for (int i = 0; i < rank_; ++i) out += concat(i ? ", " : "", (*this)[i]);
  return out + ")";
}

namespace {

Shape row_major_strides(const Shape& shape) {
  std::array<int64_t, kMaxRank> strides{};
  int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[static_cast<size_t>(i)] = step;
    step = checked_mul(step, shape[i]);
  }
  return Shape(std::span<const int64_t>(strides.data(), static_cast<size_t>(shape.rank())));
}

}  // namespace

ConstTensor::ConstTensor(const void* data, DType dtype, const Shape& shape, DeviceType device)
    : ConstTensor(data, dtype, shape, row_major_strides(shape), device) {}

ConstTensor::ConstTensor(const void* data, DType dtype, const Shape& shape, const Shape& strides,
                         DeviceType device)
    : data_(const_cast<void*>(data)),  // only Tensor returns it as writable
      dtype_(dtype),
      device_(device),
      present_(true),
      shape_(shape),
      strides_(strides) {
  TRIREME_CHECK(shape.rank() == strides.rank(), "shape ", shape, " and strides ", strides,
                " differ in rank");
}

bool ConstTensor::contiguous() const {
  int64_t step = 1;
  for (int i = rank() - 1; i >= 0; --i) {
    if (shape_[i] != 1 && strides_[i] != step) return false;
    step *= shape_[i];
  }
  return true;
}

ConstTensor ConstTensor::slice(int dim, int64_t begin, int64_t end) const {
  TRIREME_CHECK(dim >= 0 && dim < rank() && 0 <= begin && begin <= end && end <= shape_[dim],
                "slice [", begin, ", ", end, ") is outside dimension ", dim, " of ", shape_);
  ConstTensor out = *this;
  std::array<int64_t, kMaxRank> dims{};
  for (int i = 0; i < rank(); ++i)
    dims[static_cast<size_t>(i)] = i == dim ? end - begin : shape_[i];
  out.shape_ = Shape(std::span<const int64_t>(dims.data(), static_cast<size_t>(rank())));
  if (data_ != nullptr)
    out.data_ = static_cast<std::byte*>(data_) + begin * strides_[dim] * dtype_size(dtype_);
  return out;
}

ConstTensor ConstTensor::reshape(const Shape& shape) const {
  TRIREME_CHECK(contiguous() && shape.numel() == numel(), "cannot reshape ", shape_, " to ", shape,
                contiguous() ? "" : " (not contiguous)");
  return ConstTensor(data_, dtype_, shape, device_);
}

ConstTensor ConstTensor::split_last(int64_t groups, int64_t width) const {
  TRIREME_CHECK(rank() >= 1 && rank() < kMaxRank && size(-1) == groups * width && stride(-1) == 1,
                "cannot split the last dimension of ", shape_, " into ", groups, " x ", width);
  std::array<int64_t, kMaxRank> dims{};
  std::array<int64_t, kMaxRank> strides{};
  const auto last = static_cast<size_t>(rank() - 1);
  for (size_t i = 0; i < last; ++i) {
    dims[i] = shape_[static_cast<int>(i)];
    strides[i] = strides_[static_cast<int>(i)];
  }
  dims[last] = groups;
  dims[last + 1] = width;
  strides[last] = width;
  strides[last + 1] = 1;
  return ConstTensor(data_, dtype_, Shape(std::span<const int64_t>(dims.data(), last + 2)),
                     Shape(std::span<const int64_t>(strides.data(), last + 2)), device_);
}

void ConstTensor::check_dtype(DType wanted) const {
  TRIREME_CHECK(dtype_ == wanted, "tensor ", shape_, " is ", dtype_, ", expected ", wanted);
}

void check_shape(const char* op, const char* operand, const ConstTensor& t, const Shape& wanted) {
  TRIREME_CHECK(t.present() && t.shape() == wanted, op, ": ", operand, " is ", t.shape(),
                ", expected ", wanted);
}

void check_dtype(const char* op, const char* operand, const ConstTensor& t, DType wanted) {
  TRIREME_CHECK(t.dtype() == wanted, op, ": ", operand, " is ", t.dtype(), ", expected ", wanted);
}

void check_contiguous(const char* op, const char* operand, const ConstTensor& t) {
  TRIREME_CHECK(t.contiguous(), op, ": ", operand, " ", t.shape(), " must be contiguous");
}

void check_operand(const char* op, const char* operand, const ConstTensor& t, DType dtype,
                   const Shape& shape) {
  check_shape(op, operand, t, shape);
  check_dtype(op, operand, t, dtype);
  check_contiguous(op, operand, t);
}

void check_strided(const char* op, const char* operand, const ConstTensor& t, DType dtype,
                   const Shape& shape) {
  check_shape(op, operand, t, shape);
  check_dtype(op, operand, t, dtype);
  TRIREME_CHECK(t.size(-1) <= 1 || t.stride(-1) == 1, op, ": ", operand, " has stride ",
                t.stride(-1), " in its last dimension, expected 1");
}

}  // namespace trireme
