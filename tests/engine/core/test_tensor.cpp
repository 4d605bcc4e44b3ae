#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "engine/core/tensor.h"

namespace trireme::test_tensor {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

TEST(CheckedArithmetic, ThrowsOnOverflowAndNegativeOperands) {
  EXPECT_EQ(checked_mul(int64_t{1} << 31, int64_t{1} << 31), int64_t{1} << 62);
  EXPECT_EQ(checked_mul(kMax, 1), kMax);
  EXPECT_EQ(checked_mul(kMax, 0), 0);
  EXPECT_THROW(checked_mul(int64_t{1} << 32, int64_t{1} << 31), Error);
  EXPECT_THROW(checked_mul(kMax, 2), Error);
  EXPECT_THROW(checked_mul(-1, 2), Error);
  EXPECT_THROW(checked_mul(2, -1), Error);
  EXPECT_EQ(checked_add(kMax - 1, 1), kMax);
  EXPECT_THROW(checked_add(kMax, 1), Error);
  EXPECT_THROW(checked_add(-1, 2), Error);
  EXPECT_EQ(ceil_div(7, 3), 3);
  EXPECT_EQ(ceil_div(6, 3), 2);
  EXPECT_EQ(round_up(65, 64), 128);
  EXPECT_EQ(round_up(64, 64), 64);
}

TEST(Narrow, ThrowsWhatDoesNotFit) {
  EXPECT_EQ(narrow<int>(int64_t{1} << 30), 1 << 30);
  EXPECT_EQ(narrow<int32_t>(int64_t{-2147483648}), std::numeric_limits<int32_t>::min());
  EXPECT_EQ(narrow<uint8_t>(255), 255);
  EXPECT_THROW(narrow<int>(int64_t{1} << 31), Error);
  EXPECT_THROW(narrow<uint8_t>(256), Error);
  EXPECT_THROW(narrow<uint64_t>(-1), Error);
  EXPECT_THROW(narrow<int64_t>(uint64_t{1} << 63), Error);
}

TEST(Shape, CountsAndPrints) {
  EXPECT_EQ((Shape{2, 3, 4}).numel(), 24);
  EXPECT_EQ(Shape{}.numel(), 1);
  EXPECT_EQ((Shape{5, 0}).numel(), 0);
  EXPECT_EQ((Shape{4, 128}).str(), "(4, 128)");
  EXPECT_TRUE((Shape{2, 3}) == (Shape{2, 3}));
  EXPECT_FALSE((Shape{2, 3}) == (Shape{2, 3, 1}));
  EXPECT_THROW((Shape{2, -1}), Error);
  EXPECT_THROW((Shape{1, 1, 1, 1, 1, 1}), Error);
  EXPECT_THROW((Shape{int64_t{1} << 32, int64_t{1} << 32}).numel(), Error);
}

// Values 0, 1, 2, ... so that an element's value gives its position.
class TensorTest : public ::testing::Test {
 protected:
  TensorTest() { std::iota(data_.begin(), data_.end(), 0.0f); }
  Tensor tensor(const Shape& shape) { return Tensor(data_.data(), DType::kF32, shape); }
  std::array<float, 120> data_;
};

TEST_F(TensorTest, IsRowMajor) {
  const Tensor t = tensor({2, 3, 4});
  EXPECT_EQ(t.stride(0), 12);
  EXPECT_EQ(t.stride(1), 4);
  EXPECT_EQ(t.stride(-1), 1);
  EXPECT_EQ(t.size(-2), 3);
  EXPECT_EQ(t.bytes(), 96);
  EXPECT_TRUE(t.contiguous());
  EXPECT_TRUE(t.present());
  EXPECT_FALSE(Tensor().present());
}

TEST_F(TensorTest, SlicesKeepStrides) {
  const Tensor t = tensor({4, 6});
  const Tensor rows = t.slice(0, 1, 3), columns = t.slice(1, 2, 5);
  EXPECT_EQ(rows.as<float>()[0], 6.0f);
  EXPECT_TRUE(rows.contiguous());
  EXPECT_EQ(columns.as<float>()[0], 2.0f);
  EXPECT_EQ(columns.as<float>()[columns.stride(0)], 8.0f);
  EXPECT_FALSE(columns.contiguous());
  EXPECT_TRUE(columns.slice(0, 1, 2).contiguous()) << "one row of it";
  EXPECT_EQ(t.slice(0, 4, 4).numel(), 0);
  EXPECT_THROW(t.slice(0, 3, 5), Error);
  EXPECT_THROW(t.slice(0, 3, 2), Error);
  EXPECT_THROW(t.slice(2, 0, 1), Error);
  EXPECT_THROW(t.slice(0, -1, 2), Error);
}

TEST_F(TensorTest, ReshapesWhatIsContiguous) {
  const Tensor t = tensor({4, 6});
  EXPECT_EQ(t.reshape({2, 12}).stride(0), 12);
  EXPECT_THROW(t.reshape({5, 5}), Error);
  EXPECT_THROW(t.slice(1, 0, 3).reshape({12}), Error);
}

TEST_F(TensorTest, SplitsPackedHeads) {
  const Tensor qkv = tensor({3, 12});
  const Tensor k = qkv.slice(1, 4, 8).split_last(2, 2);
  EXPECT_TRUE(k.shape() == (Shape{3, 2, 2}));
  EXPECT_EQ(k.as<float>()[2 * k.stride(0) + 1 * k.stride(1) + 1], 2 * 12 + 4 + 3);
  EXPECT_THROW(qkv.split_last(5, 2), Error);
}

TEST_F(TensorTest, ChecksTheTypeOnAccess) {
  EXPECT_THROW(tensor({3}).as<double>(), Error);
  EXPECT_THROW(tensor({3}).as<int32_t>(), Error);
}

TEST_F(TensorTest, OperandChecksNameTheOperand) {
  const Tensor t = tensor({2, 3});
  check_operand("add", "a", t, DType::kF32, {2, 3});
  const auto message = [](auto&& f) -> std::string {
    try {
      f();
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  const std::string shape = message([&] { check_shape("add", "a", t, {3, 2}); });
  EXPECT_NE(shape.find("add: a is (2, 3), expected (3, 2)"), std::string::npos) << shape;
  const std::string dtype = message([&] { check_dtype("add", "a", t, DType::kBF16); });
  EXPECT_NE(dtype.find("add: a is float32, expected bfloat16"), std::string::npos) << dtype;
  const std::string strided = message([&] {
    check_operand("add", "a", t.slice(1, 0, 2), DType::kF32, {2, 2});
  });
  EXPECT_NE(strided.find("must be contiguous"), std::string::npos) << strided;
  EXPECT_NE(message([&] { check_shape("add", "a", Tensor(), {}); }), "")
      << "an absent tensor is no scalar";
}

}  // namespace
}  // namespace trireme::test_tensor
