#include "engine/io/matrix_quantizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/core/float8.h"
#include "engine/core/parallel_for.h"

namespace trireme {
namespace {

using Method = Quantization::Method;
enum GptqPart : size_t { kCodes, kZeros, kIndex, kScales };
enum Fp8Part : size_t { kBlockScales, kBlockCodes };

int64_t numbers_in_word(const Quantization& q) { return 32 / q.bits; }

template <class T>
void put(std::vector<std::byte>& bytes, int64_t index, T value) {
  std::memcpy(bytes.data() + index * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

// ORs bits into a word.
void put_bits(std::vector<std::byte>& bytes, int64_t index, uint32_t bits) {
  uint32_t word = 0;
  std::memcpy(&word, bytes.data() + index * 4, sizeof(word));
  put(bytes, index, word | bits);
}

float largest_of(std::span<const float> values) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

}  // namespace

bool can_quantize(const Quantization& q, int64_t out, int64_t in) {
  if (q.method == Method::kFp8) return out * in % 4 == 0;
  const int64_t packed = numbers_in_word(q);
  return q.group_size > 0 && in % q.group_size == 0 && in % packed == 0 && out % packed == 0;
}

std::vector<SafetensorsSpec> quantized_parts(const Quantization& q, const std::string& name,
                                             int64_t out, int64_t in) {
  if (q.method == Method::kFp8)
    return {{name + ".weight_scale_inv",
             DType::kF32,
             {ceil_div(out, q.block_rows), ceil_div(in, q.block_columns)}},
            {name + ".weight", DType::kU8, {out, in}, "F8_E4M3"}};
  const int64_t packed = numbers_in_word(q), groups = in / q.group_size;
  return {{name + ".qweight", DType::kI32, {in / packed, out}},
          {name + ".qzeros", DType::kI32, {groups, out / packed}},
          {name + ".g_idx", DType::kI32, {in}},
          {name + ".scales", DType::kF16, {groups, out}}};
}

MatrixQuantizer::MatrixQuantizer(const Quantization& quantization, int64_t out, int64_t in,
                                 int threads)
    : q_(quantization), out_(out), in_(in), threads_(threads) {
  TRIREME_CHECK(q_.method != Method::kAwq && can_quantize(q_, out, in), "a matrix (", out, ", ", in,
                ") cannot be quantized in this format");
  for (const SafetensorsSpec& part : quantized_parts(q_, "", out, in)) {
    int64_t numbers = 1;
    for (const int64_t size : part.shape) numbers *= size;
    parts_.emplace_back(static_cast<size_t>(numbers * dtype_size(part.dtype)));
  }
  if (q_.method == Method::kFp8) return;
  for (int64_t i = 0; i < in; ++i) put(parts_[kIndex], i, static_cast<int32_t>(i / q_.group_size));
  // z - 1 in every position of a word.
  uint32_t zeros = 0;
  for (int64_t place = 0; place < numbers_in_word(q_); ++place)
    zeros |= ((1u << (q_.bits - 1)) - 1) << (place * q_.bits);
  for (int64_t i = 0; i < std::ssize(parts_[kZeros]) / 4; ++i) put(parts_[kZeros], i, zeros);
}

void MatrixQuantizer::add(std::span<const float> rows) {
  const auto width = static_cast<size_t>(in_);
  TRIREME_CHECK(rows.size() % width == 0 &&
                    row_ + std::ssize(waiting_) / in_ + std::ssize(rows) / in_ <= out_,
                rows.size(), " numbers are not whole rows of ", in_, ", or exceed the ", out_,
                " rows of the matrix");
  if (q_.method == Method::kGptq) return add_rows(rows);
  for (size_t at = 0; at < rows.size(); at += width) {
    waiting_.insert(waiting_.end(), rows.begin() + static_cast<std::ptrdiff_t>(at),
                    rows.begin() + static_cast<std::ptrdiff_t>(at + width));
    const int64_t waiting = std::ssize(waiting_) / in_;
    if (waiting < q_.block_rows && row_ + waiting < out_) continue;
    add_block_rows(waiting_);
    waiting_.clear();
  }
}

void MatrixQuantizer::add_block_rows(std::span<const float> rows) {
  const int64_t columns = ceil_div(in_, q_.block_columns);
  std::vector<RoundingError> errors(static_cast<size_t>(columns));
  parallel_for(threads_, columns, 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) errors[static_cast<size_t>(c)] = add_block(rows, c);
  });
  for (const RoundingError& error : errors) error_.add(error);
  row_ += std::ssize(rows) / in_;
}

RoundingError MatrixQuantizer::add_block(std::span<const float> rows, int64_t column_block) {
  const int64_t count = std::ssize(rows) / in_, first = column_block * q_.block_columns;
  const int64_t width = std::min(q_.block_columns, in_ - first);
  const auto row = [&](int64_t r) {
    return rows.subspan(static_cast<size_t>(r * in_ + first), static_cast<size_t>(width));
  };
  float scale = 0;
  for (int64_t r = 0; r < count; ++r) scale = std::max(scale, largest_of(row(r)));
  scale /= float8_max(Float8Format::kE4M3);
  if (scale == 0) scale = 1;
  const int64_t blocks = ceil_div(in_, q_.block_columns);
  put(parts_[kBlockScales], row_ / q_.block_rows * blocks + column_block, scale);
  RoundingError error;
  std::vector<float> rounded(static_cast<size_t>(width));
  for (int64_t r = 0; r < count; ++r) {
    const auto values = row(r);
    std::byte* const codes =
        parts_[kBlockCodes].data() + static_cast<size_t>((row_ + r) * in_ + first);
    for (size_t i = 0; i < values.size(); ++i) {
      const fp8_e4m3 code(values[i] / scale);
      codes[i] = std::byte{code.bits};
      rounded[i] = static_cast<float>(code) * scale;
    }
    error.add(values, rounded);
  }
  return error;
}

void MatrixQuantizer::add_rows(std::span<const float> rows) {
  constexpr int64_t kNumbersWorthAThread = 1 << 14;
  const int64_t count = std::ssize(rows) / in_;
  std::vector<RoundingError> errors(static_cast<size_t>(count));
  parallel_for(threads_, count, kNumbersWorthAThread / in_ + 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      errors[static_cast<size_t>(r)] =
          add_row(rows.subspan(static_cast<size_t>(r * in_), static_cast<size_t>(in_)), row_ + r);
  });
  for (const RoundingError& error : errors) error_.add(error);
  row_ += count;
}

// A word belongs to one row, so that rows can be quantized concurrently.
RoundingError MatrixQuantizer::add_row(std::span<const float> row, int64_t number) {
  const int64_t packed = numbers_in_word(q_);
  const auto most = static_cast<float>((1u << q_.bits) - 1);
  const auto zero = static_cast<float>(1u << (q_.bits - 1));
  std::vector<float> rounded(row.size());
  for (int64_t group = 0; group < in_ / q_.group_size; ++group) {
    const auto first = static_cast<size_t>(group * q_.group_size);
    const auto values = row.subspan(first, static_cast<size_t>(q_.group_size));
    const f16 stored(2 * largest_of(values) / most);
    const auto scale = static_cast<float>(stored);
    put(parts_[kScales], group * out_ + number, stored);
    for (size_t k = 0; k < values.size(); ++k) {
      const float steps = scale == 0 ? 0 : values[k] / scale;
      const float code = std::clamp(std::nearbyint(steps) + zero, 0.0F, most);
      rounded[first + k] = scale * (code - zero);
      const int64_t i = group * q_.group_size + static_cast<int64_t>(k);
      put_bits(parts_[kCodes], i / packed * out_ + number,
               static_cast<uint32_t>(code) << (i % packed * q_.bits));
    }
  }
  RoundingError error;
  error.add(row, rounded);
  return error;
}

const std::vector<std::vector<std::byte>>& MatrixQuantizer::parts() const {
  TRIREME_CHECK(row_ == out_, row_, " rows were added, expected ", out_);
  return parts_;
}

}  // namespace trireme
