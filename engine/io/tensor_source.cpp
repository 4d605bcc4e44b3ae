#include "engine/io/tensor_source.h"

#include <algorithm>
#include <cstring>

#include "engine/core/convert_float.h"

namespace trireme {

int64_t SourceTensor::numel() const {
  int64_t n = 1;
  for (const int64_t dim : shape) n = checked_mul(n, dim);
  return n;
}

const SourceTensor* TensorSource::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

void TensorSource::add(SourceTensor tensor) {
  by_name_.emplace(tensor.name, tensors_.size());
  tensors_.push_back(std::move(tensor));
}

void TensorSource::read(const SourceTensor& tensor, int64_t begin,
                        const Tensor& destination) const {
  check_contiguous("TensorSource::read", tensor.name.c_str(), destination);
  if (!tensor.dtype.has_value() || !is_float(*tensor.dtype))
    fail_input(path_, ": tensor \"", tensor.name, "\" is ", tensor.dtype_name,
               ", which is not supported for weights");
  const int64_t count = destination.numel();
  TRIREME_CHECK(begin >= 0 && count <= tensor.numel() - begin, tensor.name, ": ", count,
                " elements from ", begin, " on exceed its ", tensor.numel());
  if (count == 0) return;
  const auto number = static_cast<size_t>(&tensor - tensors_.data());
  TRIREME_CHECK(number < tensors_.size(), tensor.name, " is not of ", path_);
  read_elements(number, begin, destination);
}

void convert_elements(const Tensor& destination, DType dtype, std::span<const std::byte> from) {
  TRIREME_CHECK(std::ssize(from) == destination.numel() * dtype_size(dtype), from.size(),
                " bytes of ", dtype, " for ", destination.numel(), " elements");
  if (dtype == destination.dtype()) {
    std::memcpy(destination.raw(), from.data(), from.size());
    return;
  }
  dispatch_float("convert_elements", dtype, [&]<class From>() {
    dispatch_float("convert_elements", destination.dtype(), [&]<class To>() {
      To* const out = destination.as<To>();
      const std::byte* in = from.data();
      for (int64_t i = 0, n = destination.numel(); i < n; ++i, in += sizeof(From)) {
        From value;
        std::memcpy(&value, in, sizeof(From));
        out[i] = convert_float<To>(value);
      }
    });
  });
}

void convert_elements(const Tensor& destination, std::span<const float> from) {
  convert_elements(destination, DType::kF32, std::as_bytes(from));
}

bool same_values(const TensorSource& source, const SourceTensor& a, const SourceTensor& b) {
  constexpr int64_t kPiece = 1 << 16;
  const auto is_float_tensor = [](const SourceTensor& t) {
    return t.dtype.has_value() && is_float(*t.dtype);
  };
  if (!is_float_tensor(a) || !is_float_tensor(b) || a.shape != b.shape) return false;
  std::vector<float> left(kPiece), right(kPiece);
  for (int64_t begin = 0; begin < a.numel(); begin += kPiece) {
    const int64_t n = std::min(kPiece, a.numel() - begin);
    source.read(a, begin, Tensor(left.data(), DType::kF32, Shape{n}));
    source.read(b, begin, Tensor(right.data(), DType::kF32, Shape{n}));
    if (std::memcmp(left.data(), right.data(), static_cast<size_t>(n) * sizeof(float)) != 0)
      return false;
  }
  return true;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string out = "(";
  for (size_t d = 0; d < shape.size(); ++d) out += concat(d == 0 ? "" : ", ", shape[d]);
  return out + ")";
}

}  // namespace trireme
