// Block-quantized weights without a model: a rank's part is bitwise equal to the whole, blocks of
// files are kept, and unsupported weights are refused.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "engine/io/gguf_blocks.h"
#include "engine/ops/quantized/quantized_weight.h"
#include "parallel/parameter_store.h"
#include "tests/support/compare.h"

namespace trireme::test::test_quantized_weights {
namespace {

constexpr int64_t kRows = 2100, kColumns = 2080;  // read in several pieces

float element(int64_t index) {
  const auto scattered = static_cast<uint32_t>(index) * 2654435761U >> 8 & 0xffffU;
  return (static_cast<float>(scattered) / 32768.0f - 1.0f) *
         (1.0f + static_cast<float>(index % 3000) / 1000.0f);
}

ParameterList list(const TensorBox& box) {
  ParameterList list;
  list.add({.name = "norm", .shape = {64}});
  list.add({.name = "head", .shape = {33, 64}, .head = true});
  list.add({.name = "w.weight", .shape = {kRows, kColumns}, .box = box, .linear = true});
  return list;
}

void fill(const TensorBox& box, int64_t begin, const Tensor& to) {
  ASSERT_EQ(to.dtype(), DType::kF32);
  ASSERT_LE(begin + to.numel(), box.numel());
  for (int64_t i = 0; i < to.numel(); ++i) {
    const int64_t row = box.start[0] + (begin + i) / box.extent[1];
    to.as<float>()[i] = element(row * kColumns + box.start[1] + (begin + i) % box.extent[1]);
  }
}

// Dequantized values of a file's blocks.
std::vector<float> whole(const char* type) {
  const GgufType& t = *gguf_type(type);
  std::vector<float> out(static_cast<size_t>(kRows * kColumns));
  for (size_t i = 0; i < out.size(); ++i) out[i] = element(static_cast<int64_t>(i));
  std::byte block[kMaxGgufBlock];
  for (size_t i = 0; i < out.size(); i += 32) {
    t.encode(out.data() + i, block);
    t.decode(block, out.data() + i);
  }
  return out;
}

std::vector<float> unpacked(Ctx& ctx, const ParameterStore& store, ParamHandle h) {
  const Shape shape = store.shape(h, h);
  TestTensor w(DType::kF32, shape);
  store.unpack(ctx, h, h, w);
  return {w->as<float>(), w->as<float>() + shape.numel()};
}

TEST(QuantizedWeights, ABoxHasTheBitsOfTheWhole) {
  Ctx ctx(2, "test");
  for (const BlockFormat format : {BlockFormat::kQ8_0, BlockFormat::kQ4_0}) {
    const std::vector<float> want = whole(format == BlockFormat::kQ4_0 ? "Q4_0" : "Q8_0");
    for (const TensorBox& box :
         {TensorBox{}, TensorBox{{700, 0}, {700, kColumns}}, TensorBox{{0, 1024}, {kRows, 1056}}}) {
      ParameterStore store(list(box), DType::kBF16, {}, {.blocks = format});
      EXPECT_FALSE(store.packed(0));
      ASSERT_TRUE(store.in_blocks(1) && store.in_blocks(2));
      EXPECT_EQ(store.value_bytes(), 64 * 2 + store.packed_bytes());
      store.allocate(ctx, false);
      store.pack(ctx, 2, fill);
      const Shape shape = store.shape(2, 2);
      const std::vector<float> got = unpacked(ctx, store, 2);
      const int64_t first_row = box.extent.empty() ? 0 : box.start[0];
      const int64_t first_column = box.extent.empty() ? 0 : box.start[1];
      int64_t different = 0;
      for (int64_t i = 0; i < shape.numel(); ++i) {
        const int64_t at = (first_row + i / shape[1]) * kColumns + first_column + i % shape[1];
        different += got[static_cast<size_t>(i)] != want[static_cast<size_t>(at)];
      }
      EXPECT_EQ(different, 0) << box.str();
      EXPECT_THROW(store.value(2), Error);
      EXPECT_THROW(store.pack(ctx, 0, fill), Error);
      EXPECT_THROW(store.quantized_matrices(0, 0), Error);
    }
  }
}

// The head has 8 bits in both cases; quantizing a file's blocks again gives the same blocks.
TEST(QuantizedWeights, KeepsTheBlocksOfFiles) {
  Ctx ctx(1, "test");
  for (const char* type : {"Q8_0", "Q4_0"}) {
    const bool four = std::string(type) == "Q4_0";
    ParameterList one;
    one.add({.name = "w.weight", .shape = {40, 96}, .linear = true});
    one.add({.name = "head", .shape = {40, 96}, .head = true});
    ParameterStore store(one, DType::kF32, {},
                         {.blocks = four ? BlockFormat::kQ4_0 : BlockFormat::kQ8_0});
    store.allocate(ctx, false);
    std::vector<float> numbers(40 * 96);
    for (size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = static_cast<float>(std::sin(static_cast<double>(i * i))) * 1e-2f;
    const auto rounded = [&](const char* format) {
      std::vector<float> out = numbers;
      std::byte block[kMaxGgufBlock];
      for (size_t i = 0; i < out.size(); i += 32) {
        gguf_type(format)->encode(out.data() + i, block);
        gguf_type(format)->decode(block, out.data() + i);
      }
      return out;
    };
    const std::vector<float> in_file = rounded(type);
    const auto read = [&](const std::vector<float>& from) {
      return [&from](const TensorBox&, int64_t begin, const Tensor& to) {
        std::copy_n(from.data() + begin, to.numel(), to.as<float>());
      };
    };
    store.pack(ctx, 0, read(in_file));
    EXPECT_EQ(unpacked(ctx, store, 0), in_file) << type;
    store.pack(ctx, 1, read(numbers));
    EXPECT_EQ(unpacked(ctx, store, 1), rounded("Q8_0")) << type;
  }
}

TEST(QuantizedWeights, NeighboursAreOneMatrixWhereTheirGroupsAre) {
  Ctx ctx(1, "test");
  for (const int64_t rows : {32, 24}) {
    ParameterList fused;
    const auto add = [&](const char* name, int64_t n, bool with_previous) {
      fused.add({.name = name,
                 .shape = {n, 64},
                 .init = InitKind::kNormal,
                 .init_std = 1,
                 .fused_with_previous = with_previous,
                 .linear = true});
    };
    add("q", 48, false);
    add("k", rows, true);
    add("v", 7, true);
    ParameterStore store(fused, DType::kF32, {}, {.blocks = BlockFormat::kQ8_0});
    EXPECT_EQ(store.quantized_matrices(0, 2).size(), rows % 16 == 0 ? 1U : 2U);
    store.allocate(ctx, false);
    store.initialize(ctx, 1);
    const TestTensor x(DType::kF32, {2, 64}, normals("x", 2 * 64));
    TestTensor together(DType::kF32, {2, 55 + rows});
    linear_forward_blocks(ctx, together, x, store.quantized_matrices(0, 2), {});
    int64_t output = 0;
    for (ParamHandle h = 0; h < 3; ++h) {
      const int64_t n = store.shape(h, h)[0];
      TestTensor alone(DType::kF32, {2, n});
      linear_forward_blocks(ctx, alone, x, store.quantized_matrices(h, h), {});
      const std::vector<double> part = to_doubles(together->slice(1, output, output + n));
      EXPECT_EQ(part, to_doubles(*alone)) << rows << " " << h;
      output += n;
    }
  }
}

std::string refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const InputError& e) {
    return e.what();
  }
  return "no error";
}

TEST(QuantizedWeights, RefusesHalfBlocksAndWhatHasNoScale) {
  EXPECT_NE(refusal([] {
              const ParameterStore store(list({{0, 1040}, {kRows, 1040}}), DType::kF32, {},
                                         {.blocks = BlockFormat::kQ8_0});
            }).find("w.weight: 1040 of its 2080 inputs on a rank are not whole blocks of 32"),
            std::string::npos);
  Ctx ctx(1, "test");
  ParameterStore store(list({}), DType::kF32, {}, {.blocks = BlockFormat::kQ4_0});
  store.allocate(ctx, false);
  for (const float bad : {std::nanf(""), HUGE_VALF, -70000.0f}) {
    const std::string why = refusal([&] {
      store.pack(ctx, 1, [&](const TensorBox&, int64_t, const Tensor& to) {
        std::fill_n(to.as<float>(), to.numel(), 0.5f);
        to.as<float>()[to.numel() - 1] = bad;
      });
    });
    EXPECT_NE(why.find("head: holds"), std::string::npos) << why;
  }
}

}  // namespace
}  // namespace trireme::test::test_quantized_weights
