// Tensor: a view of memory it does not own (data, dtype, device, shape, strides).
//
// Shapes and strides count elements. A default-constructed tensor (no data, rank 0) represents an
// absent optional operand: test it with present(), since numel() of rank 0 is 1. Sizes are int64_t
// everywhere on the host; narrow<T>() checks every conversion to a smaller type. In a planning run,
// tensors have shapes but no memory: the data pointer is null or, in an Arena, unmapped
// (engine/core/memory.h). Only work queued on a GPU reads or writes that GPU's memory.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <limits>
#include <span>

#include "engine/core/dtype.h"

namespace trireme {

enum class DeviceType : uint8_t { kCpu, kCuda };
inline std::string text(DeviceType device) { return device == DeviceType::kCpu ? "cpu" : "cuda"; }

inline constexpr int kMaxRank = 5;

// a * b and a + b for sizes; CheckFailed on overflow or a negative operand.
int64_t checked_mul(int64_t a, int64_t b);
int64_t checked_add(int64_t a, int64_t b);
// a / b rounded up, and the least multiple of `multiple` that is at least a. For a >= 0 and a
// positive divisor; overflow is not checked.
inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t round_up(int64_t a, int64_t multiple) { return ceil_div(a, multiple) * multiple; }

// Converts an integer; CheckFailed if To cannot represent it.
template <class To, class From>
To narrow(From value) {
  TRIREME_CHECK(std::in_range<To>(value), "value ", value, " does not fit the target type");
  return static_cast<To>(value);
}

// Sizes of up to kMaxRank dimensions, none negative (CheckFailed).
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims);  // NOLINT: a braced list is the natural spelling
  explicit Shape(std::span<const int64_t> dims);
  int rank() const { return rank_; }
  int64_t operator[](int i) const { return dims_[static_cast<size_t>(i)]; }
  int64_t numel() const;  // product of the dims, overflow-checked; 1 for rank 0
  bool operator==(const Shape& other) const;
  std::string str() const;  // "(4, 128)"
  std::span<const int64_t> dims() const { return {dims_.data(), static_cast<size_t>(rank_)}; }

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};
inline std::string text(const Shape& shape) { return shape.str(); }

// Read-only view.
class ConstTensor {
 public:
  ConstTensor() = default;
  ConstTensor(const void* data, DType dtype, const Shape& shape,  // contiguous, row-major
              DeviceType device = DeviceType::kCpu);
  ConstTensor(const void* data, DType dtype, const Shape& shape, const Shape& strides,
              DeviceType device = DeviceType::kCpu);

  DType dtype() const { return dtype_; }
  DeviceType device() const { return device_; }
  const Shape& shape() const { return shape_; }
  int rank() const { return shape_.rank(); }
  // A negative dim counts from the last dimension, -1. The caller keeps it within the rank.
  int64_t size(int dim) const { return shape_[dim < 0 ? dim + rank() : dim]; }
  int64_t stride(int dim) const { return strides_[dim < 0 ? dim + rank() : dim]; }
  int64_t numel() const { return shape_.numel(); }
  int64_t bytes() const { return numel() * dtype_size(dtype_); }
  bool present() const { return present_; }  // false only for a default-constructed tensor
  bool contiguous() const;                   // row-major; a dimension of size 1 has any stride
  const void* raw() const { return data_; }

  template <class T>
  const T* as() const {
    check_dtype(dtype_of<T>);
    return static_cast<const T*>(data_);
  }

  // Views of the same memory; CheckFailed if the arguments do not fit the shape.
  // Elements [begin, end) of dimension `dim`, which is not negative; may be empty.
  ConstTensor slice(int dim, int64_t begin, int64_t end) const;
  ConstTensor reshape(const Shape& shape) const;  // contiguous tensors only; same numel()
  // Splits the last dimension (groups x width), of stride 1, into (groups, width); keeps the other
  // strides.
  ConstTensor split_last(int64_t groups, int64_t width) const;

 protected:
  void check_dtype(DType wanted) const;
  void* data_ = nullptr;
  DType dtype_ = DType::kF32;
  DeviceType device_ = DeviceType::kCpu;
  bool present_ = false;
  Shape shape_;
  Shape strides_;
};

// Writable view.
class Tensor : public ConstTensor {
 public:
  Tensor() = default;
  Tensor(void* data, DType dtype, const Shape& shape, DeviceType device = DeviceType::kCpu)
      : ConstTensor(data, dtype, shape, device) {}
  Tensor(void* data, DType dtype, const Shape& shape, const Shape& strides,
         DeviceType device = DeviceType::kCpu)
      : ConstTensor(data, dtype, shape, strides, device) {}
  // Writing through a view does not change the view, hence const members that return T*.
  void* raw() const { return data_; }
  template <class T>
  T* as() const {
    check_dtype(dtype_of<T>);
    return static_cast<T*>(data_);
  }
  Tensor slice(int dim, int64_t begin, int64_t end) const {
    return Tensor(ConstTensor::slice(dim, begin, end));
  }
  Tensor reshape(const Shape& shape) const { return Tensor(ConstTensor::reshape(shape)); }
  Tensor split_last(int64_t groups, int64_t width) const {
    return Tensor(ConstTensor::split_last(groups, width));
  }

 private:
  explicit Tensor(const ConstTensor& view) : ConstTensor(view) {}
};

// Checks at the entry of every op: CheckFailed naming the op, the operand, its value and the
// expected one. check_shape() also fails for an absent tensor.
void check_shape(const char* op, const char* operand, const ConstTensor& t, const Shape& wanted);
void check_dtype(const char* op, const char* operand, const ConstTensor& t, DType wanted);
void check_contiguous(const char* op, const char* operand, const ConstTensor& t);
// All three checks above.
void check_operand(const char* op, const char* operand, const ConstTensor& t, DType dtype,
                   const Shape& shape);
// Shape (rank at least 1), dtype, and a stride of 1 in the last dimension unless its size is at
// most 1; other strides are free.
void check_strided(const char* op, const char* operand, const ConstTensor& t, DType dtype,
                   const Shape& shape);

}  // namespace trireme
