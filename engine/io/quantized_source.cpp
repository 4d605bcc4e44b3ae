#include "engine/io/quantized_source.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "engine/core/float8.h"

namespace trireme {
namespace {

constexpr int64_t kPiece = 8192;  // numbers decoded together
// Position of output j of 8 in an int32 of AWQ.
constexpr int kAwqNibble[8] = {0, 4, 1, 5, 2, 6, 3, 7};

uint32_t word_at(std::span<const std::byte> bytes, int64_t index) {
  uint32_t word = 0;
  std::memcpy(&word, bytes.data() + index * 4, sizeof(word));
  return word;
}

// Numbers of E2M1 without their sign.
constexpr float kFp4Numbers[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
constexpr int64_t kMxBlock = 32;  // numbers that share a scale

// One quantized matrix (out, in).
struct Matrix {
  std::string name;  // module name, without ".weight"
  int64_t out = 0, in = 0;
  std::vector<int64_t> shape = {};  // of a stack of matrices, whose rows are counted together
  int64_t block_rows = 1, block_columns = 1, scale_columns = 1;  // not used by GPTQ and AWQ
  const SourceTensor *codes = nullptr, *scales = nullptr, *zeros = nullptr, *groups = nullptr;
};

class QuantizedSource : public TensorSource {
 public:
  QuantizedSource(std::unique_ptr<SafetensorsDirectory> files, const Quantization& quantization)
      : TensorSource(files->path()), files_(std::move(files)), q_(quantization) {
    for (const SourceTensor& t : files_->tensors()) {
      if (is_part(t.name)) continue;
      if (const auto matrix = matrix_of(t); matrix.codes != nullptr) {
        const bool stack = !matrix.shape.empty();
        if (stack && files_->find(matrix.name) != nullptr)
          fail(matrix, concat(matrix.name, " holds its numbers and ", t.name, " its codes"));
        add({stack ? matrix.name : matrix.name + ".weight", quantization_name(q_), DType::kF32,
             stack ? matrix.shape : std::vector<int64_t>{matrix.out, matrix.in}, t.bytes, true});
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
      const auto numbers = std::span(piece).first(static_cast<size_t>(n));
      if (is(Method::kMxfp4)) {
        read_mx(m, begin + done, numbers);
      } else {
        for (int64_t k = 0; k < n; ++k) {
          const int64_t at = begin + done + k;
          numbers[static_cast<size_t>(k)] = number_at(m, at / m.in, at % m.in);
        }
      }
      convert_elements(out.slice(0, done, done + n), numbers);
    }
    // If the file has been truncated meanwhile, the numbers are zeros; bytes() then throws.
    for (const SourceTensor* part : {m.codes, m.scales, m.zeros, m.groups})
      if (part != nullptr) (void)files_->bytes(*part);
  }

 private:
  using Method = Quantization::Method;
  bool is(Method method) const { return q_.method == method; }
  bool compressed() const {
    return is(Method::kScaledFloat) || is(Method::kScaledInt) || is(Method::kPackedInt);
  }
  // Whether codes are one byte each, (out, in).
  bool in_bytes() const {
    return is(Method::kFp8) || is(Method::kScaledFloat) || is(Method::kScaledInt);
  }
  const char* codes_end() const {
    if (in_bytes()) return ".weight";
    if (is(Method::kMxfp4)) return "_blocks";
    return is(Method::kPackedInt) ? ".weight_packed" : ".qweight";
  }
  const char* scales_end() const {
    if (is(Method::kFp8)) return ".weight_scale_inv";
    if (is(Method::kMxfp4)) return "_scales";
    return compressed() ? ".weight_scale" : ".scales";
  }

  // Whether a tensor is a part of a matrix other than its codes.
  bool is_part(const std::string& name) const {
    if (is(Method::kFp8)) return name.ends_with(".weight_scale_inv");
    constexpr std::array kOfBlocks = {"_scales"};
    constexpr std::array kOfGroups = {".qzeros", ".scales", ".g_idx"};
    constexpr std::array kCompressed = {".weight_scale", ".weight_zero_point", ".weight_shape"};
    std::span<const char* const> ends = kOfGroups;
    if (compressed()) ends = kCompressed;
    if (is(Method::kMxfp4)) ends = kOfBlocks;
    for (const char* end : ends)
      if (const size_t n = std::strlen(end); name.ends_with(end))
        return files_->find(name.substr(0, name.size() - n) + codes_end()) != nullptr;
    return false;
  }

  // Without codes if the tensor is not quantized.
  Matrix matrix_of(const SourceTensor& t) const {
    const std::string end = codes_end();
    const char* const dtype = is(Method::kScaledInt) ? "I8" : "F8_E4M3";
    if (!t.name.ends_with(end) || (in_bytes() && t.dtype_name != dtype)) return {};
    Matrix m{.name = t.name.substr(0, t.name.size() - end.size())};
    m.codes = &t;
    if (is(Method::kMxfp4)) return with_mx_blocks(m);
    if (t.shape.size() != 2) fail(m, "its codes are not a matrix");
    m.scales = &part(m, scales_end());
    if (!m.scales->dtype.has_value() || !is_float(*m.scales->dtype))
      fail(m, "its scales are not floats");
    if (is(Method::kPackedInt)) return with_shape(m);
    return in_bytes() ? with_blocks(m) : with_groups(m);
  }

  Matrix with_blocks(Matrix m) const {
    m.out = m.codes->shape[0];
    m.in = m.codes->shape[1];
    m.block_rows = q_.block_rows < 0 ? m.out : q_.block_rows;
    m.block_columns = q_.block_columns < 0 ? m.in : q_.block_columns;
    m.scale_columns = m.in == 0 ? 0 : ceil_div(m.in, m.block_columns);
    const int64_t rows = m.out == 0 ? 0 : ceil_div(m.out, m.block_rows);
    // Scales of rows may be stored as a vector, and a single scale as a scalar.
    if (compressed() && m.scales->shape.size() < 2 && m.scale_columns == 1 &&
        m.scales->numel() == rows)
      return m;
    expect(m, *m.scales, {rows, m.scale_columns});
    return m;
  }

  Matrix with_mx_blocks(Matrix m) const {
    m.scales = &part(m, scales_end());
    for (const SourceTensor* t : {m.codes, m.scales})
      if (t->dtype_name != "U8") fail(m, concat(t->name, " is ", t->dtype_name, ", expected U8"));
    std::vector<int64_t> shape = m.codes->shape;
    if (shape.size() < 3 || shape.back() != kMxBlock / 2)
      fail(m, concat(m.codes->name, " is ", shape_text(shape), ", expected blocks of ",
                     kMxBlock / 2, " bytes"));
    shape.pop_back();
    expect(m, *m.scales, shape);
    // A shape with a 0 may have any other number.
    if (shape.back() > INT64_MAX / kMxBlock)
      fail(m, concat("its codes have the unsupported shape ", shape_text(m.codes->shape)));
    m.scale_columns = shape.back();
    m.in = shape.back() *= kMxBlock;
    m.out = m.in == 0 ? 0 : 2 * m.codes->numel() / m.in;
    m.shape = std::move(shape);
    return m;
  }

  // Matrix of compressed-tensors' packed integers, with its logical shape.
  Matrix with_shape(Matrix m) const {
    const SourceTensor& shape = part(m, ".weight_shape");
    if (shape.dtype != DType::kI64 || shape.numel() != 2)
      fail(m, shape.name + " is not two values of I64");
    std::memcpy(&m.out, files_->bytes(shape).data(), sizeof(m.out));
    std::memcpy(&m.in, files_->bytes(shape).data() + sizeof(m.out), sizeof(m.in));
    const int64_t packed = 32 / q_.bits;
    if (m.out < 1 || m.in < 1 || m.out > INT32_MAX || m.in > INT32_MAX)
      fail(m, concat(shape.name, " gives the unsupported shape ", shape_text({m.out, m.in})));
    expect(m, *m.codes, {m.out, ceil_div(m.in, packed)});
    m.block_rows = 1;
    m.block_columns = q_.block_columns < 0 ? m.in : q_.block_columns;
    m.scale_columns = ceil_div(m.in, m.block_columns);
    expect(m, *m.scales, {m.out, m.scale_columns});
    m.zeros = files_->find(m.name + ".weight_zero_point");
    if (q_.symmetric != (m.zeros == nullptr))
      fail(m, concat(m.name, ".weight_zero_point is ", q_.symmetric ? "present" : "missing",
                     ", but weights.symmetric is ", text(q_.symmetric)));
    if (m.zeros != nullptr) expect(m, *m.zeros, {ceil_div(m.out, packed), m.scale_columns});
    for (const SourceTensor* t : {m.codes, m.zeros})
      if (t != nullptr && t->dtype != DType::kI32) fail(m, t->name + " is not I32");
    return m;
  }

  Matrix with_groups(Matrix m) const {
    const int64_t packed = 32 / q_.bits;
    const bool gptq = q_.method == Quantization::Method::kGptq;
    // A shape with a 0 may have any other number.
    for (const int64_t size : m.codes->shape)
      if (size > INT64_MAX / packed)
        fail(m, concat("its codes have the unsupported shape ", shape_text(m.codes->shape)));
    m.in = m.codes->shape[0] * (gptq ? packed : 1);
    m.out = m.codes->shape[1] * (gptq ? 1 : packed);
    m.zeros = &part(m, ".qzeros");
    if (gptq) m.groups = files_->find(m.name + ".g_idx");
    for (const SourceTensor* t : {m.codes, m.zeros, m.groups})
      if (t != nullptr && t->dtype != DType::kI32) fail(m, t->name + " is not I32");
    if (m.scales->shape.empty() || m.out % packed != 0)
      fail(m, "its outputs do not fill whole int32s");
    const int64_t groups = m.scales->shape[0];
    expect(m, *m.scales, {groups, m.out});
    expect(m, *m.zeros, {groups, m.out / packed});
    if (m.groups == nullptr) {
      const int64_t size = q_.group_size < 0 ? m.in : q_.group_size;
      if (ceil_div(m.in, size) != groups)
        fail(m, concat(groups, " groups of ", size, " inputs do not match its inputs"));
      return m;
    }
    expect(m, *m.groups, {m.in});
    const auto bytes = files_->bytes(*m.groups);
    for (int64_t i = 0; i < m.in; ++i)
      if (std::cmp_greater_equal(word_at(bytes, i), groups))
        fail(m, concat("input ", i, " belongs to no group"));
    return m;
  }

  [[noreturn]] void fail(const Matrix& m, const std::string& why) const {
    fail_input(path(), ": quantized weight ", m.name, ": ", why);
  }
  void expect(const Matrix& m, const SourceTensor& t, const std::vector<int64_t>& shape) const {
    if (t.shape != shape)
      fail(m, concat(t.name, " is ", shape_text(t.shape), ", expected ", shape_text(shape)));
  }
  const SourceTensor& part(const Matrix& m, const char* end) const {
    const SourceTensor* found = files_->find(m.name + end);
    if (found == nullptr) fail(m, concat("missing tensor ", m.name, end));
    return *found;
  }

  // Decoded scales are kept for one matrix at a time.
  void prepare(const Matrix& m) const {
    if (prepared_ == &m || is(Method::kMxfp4)) return;
    scales_.resize(static_cast<size_t>(m.scales->numel()));
    files_->read(*m.scales, 0, Tensor(scales_.data(), DType::kF32, Shape{std::ssize(scales_)}));
    prepared_ = &m;
  }

  float number_at(const Matrix& m, int64_t o, int64_t i) const {
    if (in_bytes()) return scale_at(m, o, i) * byte_at(m, o * m.in + i);
    if (is(Method::kPackedInt)) return packed_at(m, o, i);
    return grouped_at(m, o, i);
  }

  float scale_at(const Matrix& m, int64_t o, int64_t i) const {
    return scales_[static_cast<size_t>(o / m.block_rows * m.scale_columns + i / m.block_columns)];
  }
  float byte_at(const Matrix& m, int64_t index) const {
    const auto bits = std::to_integer<uint8_t>(files_->bytes(*m.codes)[static_cast<size_t>(index)]);
    if (is(Method::kScaledInt)) return static_cast<float>(static_cast<int8_t>(bits));
    fp8_e4m3 code;
    code.bits = bits;
    return static_cast<float>(code);
  }

  float packed_at(const Matrix& m, int64_t o, int64_t i) const {
    const int64_t packed = 32 / q_.bits, half = int64_t{1} << (q_.bits - 1);
    const auto at = [&](const SourceTensor& t, int64_t word, int64_t place) {
      return static_cast<int64_t>(word_at(files_->bytes(t), word) >> (place * q_.bits) &
                                  ((1u << q_.bits) - 1)) -
             half;
    };
    const int64_t code = at(*m.codes, o * m.codes->shape[1] + i / packed, i % packed);
    const int64_t zero =
        m.zeros == nullptr
            ? 0
            : at(*m.zeros, o / packed * m.scale_columns + i / m.block_columns, o % packed);
    return scale_at(m, o, i) * static_cast<float>(code - zero);
  }

  // Numbers from `begin` on.
  void read_mx(const Matrix& m, int64_t begin, std::span<float> out) const {
    const auto codes = files_->bytes(*m.codes), scales = files_->bytes(*m.scales);
    const auto byte = [](std::span<const std::byte> bytes, int64_t at) {
      return std::to_integer<uint32_t>(bytes[static_cast<size_t>(at)]);
    };
    float scale = 0;
    for (int64_t k = 0; k < std::ssize(out); ++k) {
      const int64_t at = begin + k;
      if (k == 0 || at % kMxBlock == 0) scale = mx_scale(byte(scales, at / kMxBlock));
      const uint32_t code = byte(codes, at / 2) >> (at % 2 * 4);
      const float number = kFp4Numbers[code & 7] * scale;
      out[static_cast<size_t>(k)] = (code & 8) != 0 ? -number : number;
    }
  }
  // 2^(code - 127); 255: NaN. The least one is subnormal.
  static float mx_scale(uint32_t code) {
    if (code == 255) return std::numeric_limits<float>::quiet_NaN();
    return code == 0 ? 0x1p-127f : std::bit_cast<float>(code << 23);
  }

  float grouped_at(const Matrix& m, int64_t o, int64_t i) const {
    const auto codes = files_->bytes(*m.codes);
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
      if (!q_.stores_unshifted_zeros) zero = (zero + 1) & mask;
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
  std::vector<Matrix> matrices_;  // one per tensor, without codes if it is not quantized
  mutable const Matrix* prepared_ = nullptr;
  mutable std::vector<float> scales_;
};

}  // namespace

std::string quantization_name(const Quantization& q) {
  using enum Quantization::Method;
  switch (q.method) {
    case kFp8: return "F8_E4M3 in blocks";
    case kGptq: return concat("GPTQ ", q.bits, " bits");
    case kAwq: return concat("AWQ ", q.bits, " bits");
    case kScaledFloat: return "compressed-tensors F8_E4M3";
    case kScaledInt: return "compressed-tensors I8";
    case kPackedInt: return concat("compressed-tensors ", q.bits, " bits");
    case kMxfp4: return "MXFP4";
  }
  TRIREME_UNREACHABLE("quantization method ", static_cast<int>(q.method));
}

std::unique_ptr<TensorSource> dequantized(std::unique_ptr<SafetensorsDirectory> files,
                                          const Quantization& quantization) {
  return std::make_unique<QuantizedSource>(std::move(files), quantization);
}

}  // namespace trireme
