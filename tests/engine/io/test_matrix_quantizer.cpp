// Quantized matrices as other programs read them: within half a step of the original values,
// whatever pieces they were written in.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "engine/io/matrix_quantizer.h"
#include "tests/support/scratch_directory.h"

namespace trireme::test::test_matrix_quantizer {
namespace {

using Method = Quantization::Method;
const Quantization kFp8{.method = Method::kFp8};
const Quantization kGptq4{.method = Method::kGptq, .bits = 4};
const Quantization kGptq8{.method = Method::kGptq, .bits = 8};

std::vector<float> random_matrix(int64_t out, int64_t in) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 0.02F);
  std::vector<float> w(static_cast<size_t>(out * in));
  for (float& x : w) x = normal(random);
  return w;
}

MatrixQuantizer quantized(const Quantization& q, std::span<const float> w, int64_t out, int64_t in,
                          int threads = 2) {
  MatrixQuantizer quantizer(q, out, in, threads);
  quantizer.add(w);
  return quantizer;
}

// Through a file, with the reader that is tested against numpy
// (tests/transformer/formats/test_quantized_model.cpp).
std::vector<float> read_back(const Quantization& q, const MatrixQuantizer& quantizer, int64_t out,
                             int64_t in) {
  const ScratchDirectory dir;
  SafetensorsWriter writer(dir / "model.safetensors", quantized_parts(q, "m", out, in));
  for (const auto& part : quantizer.parts()) writer.write(part);
  writer.commit();
  const auto source = dequantized(std::make_unique<SafetensorsDirectory>(dir.path()), q);
  EXPECT_EQ(source->tensors().size(), 1U);
  std::vector<float> found(static_cast<size_t>(out * in));
  const SourceTensor* tensor = source->find("m.weight");
  EXPECT_TRUE(tensor != nullptr && tensor->shape == (std::vector<int64_t>{out, in}));
  source->read(*tensor, 0, Tensor(found.data(), DType::kF32, Shape{out * in}));
  return found;
}

// max |w| over the rows and columns around an element.
float largest_around(std::span<const float> w, int64_t in, int64_t row, int64_t rows,
                     int64_t column, int64_t columns) {
  float largest = 0;
  const int64_t out = std::ssize(w) / in;
  for (int64_t r = row / rows * rows; r < std::min(out, (row / rows + 1) * rows); ++r)
    for (int64_t c = column / columns * columns; c < std::min(in, (column / columns + 1) * columns);
         ++c)
      largest = std::max(largest, std::abs(w[static_cast<size_t>(r * in + c)]));
  return largest;
}

// Allowance for float32 quotients and products in the bounds.
constexpr double kSlack = 1 + 1e-6;

TEST(MatrixQuantizer, Float8IsWithinHalfAStep) {
  const int64_t out = 200, in = 300;  // partial blocks
  const std::vector<float> w = random_matrix(out, in);
  const MatrixQuantizer quantizer = quantized(kFp8, w, out, in);
  const std::vector<float> found = read_back(kFp8, quantizer, out, in);
  RoundingError error;
  for (int64_t r = 0; r < out; ++r)
    for (int64_t c = 0; c < in; ++c) {
      const auto i = static_cast<size_t>(r * in + c);
      const double s = largest_around(w, in, r, 128, c, 128) / 448.0;
      // 3 bits of mantissa; below 2^-6 the step is 2^-9.
      const double bound = std::max(std::abs(w[i]) / 16.0, s / 1024) * kSlack;
      ASSERT_LE(std::abs(found[i] - w[i]), bound) << r << ", " << c;
    }
  error.add(w, found);
  EXPECT_NEAR(error.relative(), quantizer.error().relative(), 1e-12);
  EXPECT_EQ(error.max_error, quantizer.error().max_error);
  // Uniform errors with a step of 2^-3 to 2^-4 of the value: between 1 / (16 sqrt 12) and 1 / (8
  // sqrt 12).
  EXPECT_GT(error.relative(), 0.018);
  EXPECT_LT(error.relative(), 0.037);
}

TEST(MatrixQuantizer, GroupsAreWithinHalfAStep) {
  const int64_t out = 24, in = 384;
  const std::vector<float> w = random_matrix(out, in);
  for (const Quantization& q : {kGptq4, kGptq8}) {
    const double most = std::pow(2, static_cast<double>(q.bits)) - 1;
    const MatrixQuantizer quantizer = quantized(q, w, out, in);
    const std::vector<float> found = read_back(q, quantizer, out, in);
    for (int64_t r = 0; r < out; ++r)
      for (int64_t c = 0; c < in; ++c) {
        const auto i = static_cast<size_t>(r * in + c);
        const double s = 2 * largest_around(w, in, r, 1, c, 128) / most;
        // The rounded scale is off by 2^-11, multiplied by the largest code, most / 2.
        const double bound = s * (0.5 + most / 2 / 2048) * (1 + 1.0 / 2048) * kSlack;
        ASSERT_LE(std::abs(found[i] - w[i]), bound) << q.bits << ": " << r << ", " << c;
      }
    RoundingError error;
    error.add(w, found);
    EXPECT_NEAR(error.relative(), quantizer.error().relative(), 1e-12);
    // Uniform errors with a step of 2 max / most, where max of 128 normal values is about 2.7
    // standard deviations.
    const double expected = 2 * 2.7 / most / std::sqrt(12);
    EXPECT_NEAR(error.relative(), expected, 0.1 * expected);
  }
}

TEST(MatrixQuantizer, PiecesDoNotMatter) {
  const int64_t out = 136, in = 128;
  const std::vector<float> w = random_matrix(out, in);
  for (const Quantization& q : {kFp8, kGptq4}) {
    const MatrixQuantizer whole = quantized(q, w, out, in);
    MatrixQuantizer pieces(q, out, in, 1);
    const std::span<const float> all(w);
    pieces.add(all.first(128));
    pieces.add(all.subspan(128, size_t{130} * 128));
    pieces.add(all.subspan(size_t{131} * 128));
    EXPECT_EQ(pieces.parts(), whole.parts());
    EXPECT_EQ(pieces.error().squared_error, whole.error().squared_error);
  }
}

// Several rows, and several blocks of a row, for each thread.
TEST(MatrixQuantizer, ThreadsDoNotMatter) {
  const int64_t out = 400, in = 1152;
  const std::vector<float> w = random_matrix(out, in);
  for (const Quantization& q : {kFp8, kGptq4, kGptq8}) {
    const MatrixQuantizer one = quantized(q, w, out, in, 1), four = quantized(q, w, out, in, 4);
    EXPECT_EQ(four.parts(), one.parts());
    EXPECT_EQ(four.error().squared_error, one.error().squared_error);
    EXPECT_EQ(four.error().sum_of_squares, one.error().sum_of_squares);
    EXPECT_EQ(four.error().max_error, one.error().max_error);
  }
}

TEST(MatrixQuantizer, NothingButZeros) {
  const std::vector<float> w(size_t{8} * 128);
  for (const Quantization& q : {kFp8, kGptq4, kGptq8}) {
    const MatrixQuantizer quantizer = quantized(q, w, 8, 128);
    EXPECT_EQ(read_back(q, quantizer, 8, 128), w);
    EXPECT_EQ(quantizer.error().relative(), 0);
  }
}

TEST(MatrixQuantizer, WhatFits) {
  EXPECT_TRUE(can_quantize(kFp8, 6, 10));
  EXPECT_FALSE(can_quantize(kFp8, 3, 5));
  EXPECT_TRUE(can_quantize(kGptq4, 8, 128));
  EXPECT_FALSE(can_quantize(kGptq4, 4, 128));
  EXPECT_TRUE(can_quantize(kGptq8, 4, 128));
  EXPECT_FALSE(can_quantize(kGptq8, 8, 192));
  Quantization one_group = kGptq4;  // all inputs: a form that is read, never written
  one_group.group_size = -1;
  EXPECT_FALSE(can_quantize(one_group, 8, 128));
  Quantization small_groups = kGptq4;  // smaller than an int32
  small_groups.group_size = 4;
  EXPECT_TRUE(can_quantize(small_groups, 8, 16));
  EXPECT_FALSE(can_quantize(small_groups, 8, 12));
}

}  // namespace
}  // namespace trireme::test::test_matrix_quantizer
