#include "engine/io/quantized_source.h"

#include <algorithm>
#include <cstring>

#include "engine/core/float8.h"

namespace trireme {
namespace {

constexpr int64_t kPiece = 8192;  // numbers that are decoded together
// Where output j of 8 lies in an int32 of AWQ.
constexpr int kAwqNibble[8] = {0, 4, 1, 5, 2, 6, 3, 7};

uint32_t word_at(std::span<const std::byte> bytes, int64_t index) {
  uint32_t word = 0;
  std::memcpy(&word, bytes.data() + index * 4, sizeof(word));
  return word;
}

// One quantised matrix (out, in).
struct Matrix {
  std::string name;  // of the module, without ".weight"
  int64_t out = 0, in = 0;
  const SourceTensor *codes = nullptr, *scales = nullptr, *zeros = nullptr, *groups = nullptr;
};

class QuantizedSource : public TensorSource {
 public:
  QuantizedSource(std::unique_ptr<SafetensorsDirectory> files, const Quantization& quantization)
      : TensorSource(files->path()), files_(std::move(files)), q_(quantization) {
    for (const SourceTensor& t : files_->tensors()) {
      if (is_part(t.name)) continue;
      if (const auto matrix = matrix_of(t); matrix.codes != nullptr) {
        add({matrix.name + ".weight",
             quantization_name(q_),
             DType::kF32,
             {matrix.out, matrix.in},
             t.bytes,
             true});
        matrices_.push_back(matrix);
      } else {
        add(t);
        matrices_.push_back({.name = t.name});
      }
    }
  }
  std::vector<std::string> files() const override { return files_->files(); }

 protected:
  void read_elements(size_t number, int64_t begin, const Tensor& destination) const override {
    const Matrix& m = matrices_[number];
    if (m.codes == nullptr) {
      files_->read(*files_->find(m.name), begin, destination);
      return;
    }
    prepare(m);
    const Tensor out = destination.reshape({destination.numel()});
    std::vector<float> piece(static_cast<size_t>(std::min(kPiece, out.numel())));
    for (int64_t done = 0; done < out.numel(); done += kPiece) {
      const int64_t n = std::min(kPiece, out.numel() - done);
      for (int64_t k = 0; k < n; ++k) {
        const int64_t at = begin + done + k;
        piece[static_cast<size_t>(k)] = number_at(m, at / m.in, at % m.in);
      }
      convert_elements(out.slice(0, done, done + n),
                       std::span<const float>(piece).first(static_cast<size_t>(n)));
    }
  }

 private:
  bool fp8() const { return q_.method == Quantization::Method::kFp8; }

  // What belongs to a matrix beside its codes.
  bool is_part(const std::string& name) const {
    if (fp8()) return name.ends_with(".weight_scale_inv");
    for (const char* end : {".qzeros", ".scales", ".g_idx"})
      if (const size_t n = std::strlen(end); name.ends_with(end))
        return files_->find(name.substr(0, name.size() - n) + ".qweight") != nullptr;
    return false;
  }

  // Without codes where the tensor is not quantised.
  Matrix matrix_of(const SourceTensor& t) const {
    const std::string end = fp8() ? ".weight" : ".qweight";
    if (!t.name.ends_with(end) || (fp8() && t.dtype_name != "F8_E4M3")) return {};
    Matrix m{.name = t.name.substr(0, t.name.size() - end.size())};
    m.codes = &t;
    if (t.shape.size() != 2) fail(m, "its codes are no matrix");
    m.scales = &part(m, fp8() ? ".weight_scale_inv" : ".scales");
    if (!m.scales->dtype.has_value() || !is_float(*m.scales->dtype))
      fail(m, "scales without floats");
    return fp8() ? with_blocks(m) : with_groups(m);
  }

  Matrix with_blocks(Matrix m) const {
    m.out = m.codes->shape[0];
    m.in = m.codes->shape[1];
    expect(m, *m.scales, {ceil_div(m.out, q_.block_rows), ceil_div(m.in, q_.block_columns)});
    return m;
  }

  Matrix with_groups(Matrix m) const {
    const int64_t packed = 32 / q_.bits;
    const bool gptq = q_.method == Quantization::Method::kGptq;
    // A shape with a 0 may hold any other number.
    for (const int64_t size : m.codes->shape)
      if (size > INT64_MAX / packed) fail(m, concat("its codes are ", shape_text(m.codes->shape)));
    m.in = m.codes->shape[0] * (gptq ? packed : 1);
    m.out = m.codes->shape[1] * (gptq ? 1 : packed);
    m.zeros = &part(m, ".qzeros");
    if (gptq) m.groups = files_->find(m.name + ".g_idx");
    for (const SourceTensor* t : {m.codes, m.zeros, m.groups})
      if (t != nullptr && t->dtype != DType::kI32) fail(m, t->name + " is not I32");
    if (m.scales->shape.empty() || m.out % packed != 0) fail(m, "its outputs do not fill an int32");
    const int64_t groups = m.scales->shape[0];
    expect(m, *m.scales, {groups, m.out});
    expect(m, *m.zeros, {groups, m.out / packed});
    if (m.groups == nullptr) {
      const int64_t size = q_.group_size < 0 ? m.in : q_.group_size;
      if (ceil_div(m.in, size) != groups) fail(m, concat(groups, " groups of ", size, " inputs"));
      return m;
    }
    expect(m, *m.groups, {m.in});
    const auto bytes = files_->bytes(*m.groups);
    for (int64_t i = 0; i < m.in; ++i)
      if (std::cmp_greater_equal(word_at(bytes, i), groups))
        fail(m, concat("input ", i, " is of no group"));
    return m;
  }

  [[noreturn]] void fail(const Matrix& m, const std::string& why) const {
    fail_input(path(), ": quantised weight ", m.name, ": ", why);
  }
  void expect(const Matrix& m, const SourceTensor& t, const std::vector<int64_t>& shape) const {
    if (t.shape != shape)
      fail(m, concat(t.name, " is ", shape_text(t.shape), ", expected ", shape_text(shape)));
  }
  const SourceTensor& part(const Matrix& m, const char* end) const {
    const SourceTensor* found = files_->find(m.name + end);
    if (found == nullptr) fail(m, concat("there is no ", m.name, end));
    return *found;
  }

  // The scales of one matrix at a time are kept as numbers.
  void prepare(const Matrix& m) const {
    if (prepared_ == &m) return;
    scales_.resize(static_cast<size_t>(m.scales->numel()));
    files_->read(*m.scales, 0, Tensor(scales_.data(), DType::kF32, Shape{std::ssize(scales_)}));
    prepared_ = &m;
  }

  float number_at(const Matrix& m, int64_t o, int64_t i) const {
    const auto codes = files_->bytes(*m.codes);
    if (fp8()) {
      fp8_e4m3 code;
      code.bits = std::to_integer<uint8_t>(codes[static_cast<size_t>(o * m.in + i)]);
      const int64_t columns = m.scales->shape[1];
      return static_cast<float>(code) *
             scales_[static_cast<size_t>(o / q_.block_rows * columns + i / q_.block_columns)];
    }
    const int64_t packed = 32 / q_.bits;
    const uint32_t mask = (1u << q_.bits) - 1;
    const auto zeros = files_->bytes(*m.zeros);
    const auto at = [&](uint32_t word, int64_t place) {
      return static_cast<int64_t>(word >> (place * q_.bits) & mask);
    };
    int64_t group = 0, code = 0, zero = 0;
    if (q_.method == Quantization::Method::kGptq) {
      group = m.groups != nullptr ? word_at(files_->bytes(*m.groups), i) : group_of(m, i);
      code = at(word_at(codes, i / packed * m.out + o), i % packed);
      zero = at(word_at(zeros, group * (m.out / packed) + o / packed), o % packed);
      if (!q_.zeros_as_they_are) zero = (zero + 1) & mask;
    } else {
      group = group_of(m, i);
      const int64_t width = m.out / packed, nibble = kAwqNibble[o % packed];
      code = at(word_at(codes, i * width + o / packed), nibble);
      zero = at(word_at(zeros, group * width + o / packed), nibble);
    }
    return scales_[static_cast<size_t>(group * m.out + o)] * static_cast<float>(code - zero);
  }
  int64_t group_of(const Matrix& m, int64_t i) const {
    return q_.group_size < 0 || q_.group_size >= m.in ? 0 : i / q_.group_size;
  }

  std::unique_ptr<SafetensorsDirectory> files_;
  Quantization q_;
  std::vector<Matrix> matrices_;  // one for each tensor, without codes where it is not quantised
  mutable const Matrix* prepared_ = nullptr;
  mutable std::vector<float> scales_;
};

}  // namespace

std::string quantization_name(const Quantization& q) {
  if (q.method == Quantization::Method::kFp8) return "F8_E4M3 in blocks";
  return concat(q.method == Quantization::Method::kGptq ? "GPTQ " : "AWQ ", q.bits, " bits");
}

std::unique_ptr<TensorSource> dequantised(std::unique_ptr<SafetensorsDirectory> files,
                                          const Quantization& quantization) {
  return std::make_unique<QuantizedSource>(std::move(files), quantization);
}

}  // namespace trireme
